// Keys and digests. No logic here: their contract is export_cache/key.h.
#include "export_cache/key.h"

#include <pybind11/pybind11.h>

#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

// UTF-8; lone surrogates, which Python strings may hold, are kept.
std::string text_of(const py::handle& value) {
  return py::cast<std::string>(py::bytes(value.attr("encode")("utf-8", "surrogatepass")));
}

void add_int(KeyBuilder& key, std::string_view name, const py::handle& value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) return key.add(name, static_cast<std::int64_t>(number));
  key.add(name, KeyBigInt{py::cast<std::string>(py::str("{:d}").format(value))});
}

// bool before int, of which it is a subclass.
void add_field(KeyBuilder& key, const py::handle& name_object, const py::handle& value) {
  const std::string name = text_of(name_object);
  PyObject* object = value.ptr();
  if (object == Py_None) return key.add(name, nullptr);
  if (PyBool_Check(object)) return key.add(name, object == Py_True);
  if (PyLong_Check(object)) return add_int(key, name, value);
  if (PyFloat_Check(object)) return key.add(name, PyFloat_AS_DOUBLE(object));
  if (PyUnicode_Check(object)) return key.add(name, text_of(value));
  if (PyBytes_Check(object)) return key.add(name, KeyBytes{py::cast<std::string_view>(value)});
  throw RekindleException(invalid_argument("key field '" + name + "' is a " + Py_TYPE(object)->tp_name +
                                           "; give None, bool, int, float, str or bytes"));
}

void add_all(KeyBuilder& key, const py::iterable& fields) {
  for (const py::handle& field : fields) {
    const auto pair = py::cast<py::tuple>(field);
    if (pair.size() != 2) throw py::value_error("a key field is a pair (name, value)");
    add_field(key, pair[0], pair[1]);
  }
}

py::list fields(const KeyBuilder& key) {
  py::list rows;
  for (const KeyField& field : key.fields()) {
    rows.append(py::make_tuple(field.name, field_type_name(field.type),
                               py::bytes(field.value).attr("decode")("utf-8", "replace"),
                               field.digest.hex()));
  }
  return rows;
}

}  // namespace

void bind_key(py::module_& m) {
  m.def("digest128",
        [](const py::bytes& data) { return digest_of(static_cast<std::string_view>(data)).hex(); });
  py::class_<KeyBuilder>(m, "KeyBuilder")
      .def(py::init<>())
      .def("add", &add_field, py::arg("name"), py::arg("value"))
      .def("add_all", &add_all, py::arg("fields"))
      .def("digest_hex", [](const KeyBuilder& self) { return self.digest().hex(); })
      .def("fields", &fields)
      .def("fields_json", &KeyBuilder::fields_json);
}

}  // namespace rekindle::python
