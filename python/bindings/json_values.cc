#include "python/bindings/json_values.h"

#include <cmath>
#include <string>

#include "python/bindings/errors.h"

namespace rekindle::python {

namespace py = pybind11;
using contract::Json;

namespace {

// A new reference that a call of Python's gave, or Python's error.
py::object checked(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

py::object int_of(const std::string& hexadecimal) {
  return checked(PyLong_FromString(hexadecimal.c_str(), nullptr, 16));
}

py::object object_of(const Json& json) {
  if (const Json* digits = contract::only(json, "int"); digits != nullptr && contract::is_integer(json)) {
    return int_of(digits->get_ref<const std::string&>());
  }
  if (const Json* name = contract::only(json, "float"); name != nullptr && contract::is_scalar(json)) {
    return py::float_(std::stod(name->get_ref<const std::string&>()));
  }
  if (const Json* escaped = contract::only(json, "text"); escaped != nullptr && contract::is_text(json)) {
    const auto& text = escaped->get_ref<const std::string&>();
    return checked(PyUnicode_DecodeUnicodeEscape(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr));
  }
  py::dict made;
  for (const auto& [name, item] : json.items()) made[py::str(name)] = as_python(item);
  return made;
}

Json json_of_int(py::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) return number;
  return {{"int", py::cast<std::string>(checked(PyNumber_ToBase(value.ptr(), 16)))}};
}

Json json_of_float(double number) {
  if (std::isfinite(number)) return number;
  return {{"float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
}

Json json_of_text(py::handle value) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size)) return std::string(text, size);
  PyErr_Clear();
  return {{"text", py::cast<std::string>(checked(PyUnicode_AsUnicodeEscapeString(value.ptr())))}};
}

Json json_of(py::handle value, int depth);

Json json_of_items(py::handle items, int depth) {
  Json made = Json::array();
  for (const py::handle item : items) made.push_back(json_of(item, depth + 1));
  return made;
}

Json json_of_dict(const py::dict& fields, int depth) {
  Json made = Json::object();
  for (const auto& [name, item] : fields) {
    if (!py::isinstance<py::str>(name))
      throw RekindleException(invalid_argument("a name in a contract is no text"));
    made[py::cast<std::string>(name)] = json_of(item, depth + 1);
  }
  return made;
}

Json json_of(py::handle value, int depth) {
  if (depth >= contract::kDeepest) throw RekindleException(invalid_argument("a contract would be too deep"));
  if (value.is_none()) return nullptr;
  if (PyBool_Check(value.ptr())) return value.is(py::bool_(true));
  if (PyLong_Check(value.ptr())) return json_of_int(value);
  if (PyFloat_Check(value.ptr())) return json_of_float(PyFloat_AS_DOUBLE(value.ptr()));
  if (PyUnicode_Check(value.ptr())) return json_of_text(value);
  if (PyDict_Check(value.ptr())) return json_of_dict(py::reinterpret_borrow<py::dict>(value), depth);
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) return json_of_items(value, depth);
  const std::string kind = py::cast<std::string>(py::type::handle_of(value).attr("__name__"));
  throw RekindleException(invalid_argument("a contract cannot hold a " + kind));
}

}  // namespace

py::object as_python(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return py::none();
    case Json::value_t::boolean:
      return py::bool_(json.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(json.get<std::uint64_t>());
    case Json::value_t::number_float:
      return py::float_(json.get<double>());
    case Json::value_t::string:
      return py::str(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      py::list made;
      for (const Json& item : json) made.append(as_python(item));
      return made;
    }
    default:
      return object_of(json);
  }
}

Json as_json(py::handle value) { return json_of(value, 0); }

}  // namespace rekindle::python
