// What Python objects are made of, for comparisons by identity. All pointers are borrowed. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>
#include <structmember.h>

#include <cstddef>
#include <cstdint>

#include "python/calls/stand_ins.h"

namespace rekindle::python {

namespace py = pybind11;

// Borrowed: the dict of a dict or class; null for anything else.
inline PyObject* table_of(PyObject* object) {
  if (PyDict_Check(object)) return object;
  if (!PyType_Check(object)) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* table = PyType_GetDict(type);
  Py_DECREF(table);  // the class keeps it
  return table;
#else
  return type->tp_dict;
#endif
}

// Tells whether a dict keeps an order of its own, as an OrderedDict does. Most objects are told by their
// exact class.
inline bool is_ordered(PyObject* object) {
  return PyDict_Check(object) && !PyDict_CheckExact(object) && PyODict_Check(object);
}

// Changes with every change of a dict and is never used again; 0 where Python keeps no such number. The order
// of an OrderedDict is not part of its dict.
inline std::uint64_t version_of(PyObject* object) {
#if PY_VERSION_HEX < 0x030C0000
  if (is_ordered(object) && PyDict_GET_SIZE(object) > 1) return 0;
  if (PyObject* table = table_of(object)) return reinterpret_cast<PyDictObject*>(table)->ma_version_tag;
#endif
  static_cast<void>(object);
  return 0;
}

template <typename Visit>
bool visit_table(PyObject* table, Visit visit) {
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(table, &position, &key, &value);) {
    value = stands_for(value);
    if (value != nullptr && !(visit(key) && visit(value))) return false;
  }
  return true;
}

template <typename Visit>
bool visit_ordered(PyObject* table, Visit visit) {
  for (const py::handle key : py::reinterpret_borrow<py::object>(table)) {
    if (!visit(key.ptr()) || !visit(PyDict_GetItem(table, key.ptr()))) return false;
  }
  return true;
}

template <typename Visit>
bool visit_function(PyObject* object, Visit visit) {
  auto* const function = reinterpret_cast<PyFunctionObject*>(object);
  if (!visit(function->func_name) || !visit(function->func_qualname)) return false;
  if (!visit(PyFunction_GET_CODE(object)) || !visit(PyFunction_GET_DEFAULTS(object)) ||
      !visit(PyFunction_GET_KW_DEFAULTS(object))) {
    return false;
  }
  PyObject* closure = PyFunction_GET_CLOSURE(object);
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    if (!visit(PyCell_GET(PyTuple_GET_ITEM(closure, i)))) return false;
  }
  PyObject* attributes = function->func_dict;  // null until one is set
  return attributes == nullptr || visit_table(attributes, visit);
}

inline PyObject* in_slot(PyObject* object, std::ptrdiff_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

// Visits the functions that a property, staticmethod or classmethod calls. Only its __init__ exchanges them.
template <typename Visit>
bool visit_members(PyObject* object, const PyTypeObject& type, Visit visit) {
  for (const PyMemberDef* member = type.tp_members; member != nullptr && member->name != nullptr; ++member) {
    if (member->type == T_OBJECT && !visit(in_slot(object, member->offset))) return false;
  }
  return true;
}

// Calls `visit` with each borrowed part, which may be null, until it returns false.
template <typename Visit>
bool visit_parts(PyObject* object, Visit visit) {
  if (is_ordered(object)) return visit_ordered(object, visit);
  if (PyObject* table = table_of(object)) return visit_table(table, visit);
  if (PyFunction_Check(object)) return visit_function(object, visit);
  for (const PyTypeObject* type : {&PyProperty_Type, &PyStaticMethod_Type, &PyClassMethod_Type}) {
    if (PyObject_TypeCheck(object, const_cast<PyTypeObject*>(type)) != 0)
      return visit_members(object, *type, visit);
  }
  if (!PyList_Check(object) && !PyTuple_Check(object)) return true;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (!visit(PySequence_Fast_GET_ITEM(object, i))) return false;
  }
  return true;
}

// The items of a set in their order, taken past what a subclass makes of it.
inline py::object in_order(PyObject* set) {
  const auto plain = py::reinterpret_steal<py::object>(PySet_Type.tp_iter(set));
  auto items = py::reinterpret_steal<py::object>(plain ? PySequence_Tuple(plain.ptr()) : nullptr);
  if (!items) throw py::error_already_set();
  return items;
}

inline bool same_order(PyObject* set, PyObject* items) {
  const Py_ssize_t size = PyTuple_GET_SIZE(items);
  if (PySet_GET_SIZE(set) != size) return false;
  if (size == 0) return true;
  const py::object now = in_order(set);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (PyTuple_GET_ITEM(now.ptr(), i) != PyTuple_GET_ITEM(items, i)) return false;
  }
  return true;
}

// Borrowed: the bases of a class, in the order in which they are searched; null for anything else.
inline PyObject* bases_of(PyObject* object) {
  return PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object)->tp_mro : nullptr;
}

// Borrowed: the dict of an object's attributes; null where it has none.
inline PyObject* attributes_of(PyObject* object) {
  PyObject** const place = _PyObject_GetDictPtr(object);
  return place == nullptr ? nullptr : *place;
}

// Calls `visit` with the offset of each slot that Python classes give an object.
template <typename Visit>
void visit_slots(PyObject* object, Visit visit) {
  PyObject* const bases = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    PyObject* const base = PyTuple_GET_ITEM(bases, i);
    if (PyType_HasFeature(reinterpret_cast<PyTypeObject*>(base), Py_TPFLAGS_HEAPTYPE) == 0) continue;
    visit_table(table_of(base), [&](PyObject* part) {
      if (Py_TYPE(part) == &PyMemberDescr_Type) {
        const PyMemberDef* const member = reinterpret_cast<PyMemberDescrObject*>(part)->d_member;
        if (member->type == T_OBJECT_EX) visit(static_cast<std::ptrdiff_t>(member->offset));
      }
      return true;
    });
  }
}

// The object itself, or what a weak reference leads to; null where that is gone.
inline py::object alive(const py::object& object, bool weak) {
  if (!weak) return object;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(object.ptr(), &found) < 0) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(found);
#else
  PyObject* const found = PyWeakref_GetObject(object.ptr());
  return py::reinterpret_borrow<py::object>(found == Py_None ? nullptr : found);
#endif
}

}  // namespace rekindle::python
