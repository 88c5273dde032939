// Keys and digests. No logic here: their contract is export_cache/key.h.
#include "export_cache/key.h"

#include <pybind11/pybind11.h>

#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "src/base/bytes.h"

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

// Valid as long as the object. Text with lone surrogates has no UTF-8: raises UnicodeEncodeError.
std::string_view utf8_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<std::size_t>(size)};
}

std::string_view view_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// A type tag and the value, one length-prefixed part: 1, True, 1.0 and "1" differ, so do 0.0 and -0.0.
void write_value(ByteWriter& writer, PyObject* value) {
  const auto tagged = [&](char tag, std::string_view text) {
    writer.number<std::uint64_t>(text.size() + 1);
    writer.number(tag);
    writer.raw(text);
  };
  if (PyUnicode_CheckExact(value)) return tagged('s', utf8_of(value));
  if (value == Py_None) return tagged('n', {});
  if (PyBool_Check(value)) return tagged('b', value == Py_True ? "1" : "0");
  if (PyLong_CheckExact(value)) return tagged('i', py::cast<std::string>(py::str(value)));
  if (PyFloat_CheckExact(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    return tagged('f', {reinterpret_cast<const char*>(&number), sizeof(number)});
  }
  if (PyBytes_CheckExact(value)) return tagged('y', view_of(value));
  throw py::type_error(std::string("a leaf value must be str, int, float, bool, bytes or None, not ") +
                       Py_TYPE(value)->tp_name);
}

std::string digest_parts(const py::iterable& parts) {
  ByteWriter writer;
  for (const py::handle& part : parts) {
    if (!PyBytes_Check(part.ptr())) throw py::type_error("a part of a digest must be bytes");
    writer.string(view_of(part.ptr()));
  }
  return digest_of(writer.bytes()).hex();
}

std::string digest_leaves(const py::iterable& leaves) {
  ByteWriter writer;
  for (const py::handle& leaf : leaves) {
    PyObject* pair = leaf.ptr();
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
      throw py::type_error("a leaf is a pair (name, value)");
    }
    writer.string(utf8_of(PyTuple_GET_ITEM(pair, 0)));
    write_value(writer, PyTuple_GET_ITEM(pair, 1));
  }
  return digest_of(writer.bytes()).hex();
}

}  // namespace

void bind_key(py::module_& m) {
  m.def("digest128",
        [](const py::bytes& data) { return digest_of(static_cast<std::string_view>(data)).hex(); });
  m.def("digest_parts", &digest_parts, py::arg("parts"),
        "Digest of a sequence of byte strings; each is length-prefixed, so no two sequences read alike.");
  m.def("digest_leaves", &digest_leaves, py::arg("leaves"), "Digest of ordered (name, value) leaves.");
  py::class_<KeyBuilder>(m, "KeyBuilder")
      .def(py::init<>())
      .def("add", &add_field, py::arg("name"), py::arg("value"))
      .def("add_all", &add_all, py::arg("fields"))
      .def("digest_hex", [](const KeyBuilder& self) { return self.digest().hex(); })
      .def("fields", &fields)
      .def("fields_json", &KeyBuilder::fields_json);
}

}  // namespace rekindle::python
