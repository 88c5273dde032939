#include "python/recording/sets.h"

#include <pythread.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rekindle::python {

namespace py = pybind11;

namespace {

// No event and no subclass shows an iteration that `for`, `tuple` or `join` begins: the slot of the type
// does, and so do the functions that take items without an iterator. Guarded by the GIL.
struct Watch {
  py::object on_order;  // null while nobody is told
  unsigned long thread = 0;
  bool telling = false;
};

Watch& watch() {
  static Watch* const only = new Watch;  // never destroyed: it holds a Python object
  return *only;
}

bool is_watched(PyObject* items) {
  const Watch& watched = watch();
  return watched.on_order && !watched.telling && PyAnySet_Check(items) && PySet_GET_SIZE(items) > 1 &&
         PyThread_get_thread_ident() == watched.thread;
}

// Tells of a set; of anything else nothing. False: Python's error is set.
bool tell(PyObject* items) {
  if (!is_watched(items)) return true;
  const py::object told = watch().on_order;
  watch().telling = true;
  PyObject* const result = PyObject_CallOneArg(told.ptr(), items);
  watch().telling = false;
  Py_XDECREF(result);
  return result != nullptr;
}

// A slot of a type. Types that inherit it have a copy, and so has the method that wraps it.
struct Slot {
  PyTypeObject* base;
  const char* method;                // null: none
  void** (*in)(PyTypeObject* type);  // null where the type has no room for it
  void* ours;
  void* own = nullptr;  // Python's
};

PyObject* own_attribute(PyTypeObject* type, const char* name) {  // borrowed; null: inherited
#if PY_VERSION_HEX >= 0x030C0000
  const auto table = py::reinterpret_steal<py::object>(PyType_GetDict(type));
  return PyDict_GetItemString(table.ptr(), name);
#else
  return PyDict_GetItemString(type->tp_dict, name);
#endif
}

void exchange(PyTypeObject* type, const Slot& slot, void* from, void* to) {
  void** const place = slot.in(type);
  if (place != nullptr && *place == from) *place = to;
  PyObject* const method = slot.method == nullptr ? nullptr : own_attribute(type, slot.method);
  if (method != nullptr && Py_IS_TYPE(method, &PyWrapperDescr_Type)) {
    void*& wrapped = reinterpret_cast<PyWrapperDescrObject*>(method)->d_wrapped;
    if (wrapped == from) wrapped = to;
  }
  const auto list_of = py::handle(reinterpret_cast<PyObject*>(&PyType_Type)).attr("__subclasses__");
  const py::object subclasses = list_of(py::handle(reinterpret_cast<PyObject*>(type)));
  for (const py::handle subclass : subclasses) {
    exchange(reinterpret_cast<PyTypeObject*>(subclass.ptr()), slot, from, to);
  }
}

// The definition of a C function, which all objects that stand for the function share.
struct Function {
  const char *owner, *name;  // of builtins
  int flags;
  PyCFunction ours;
  PyMethodDef* definition = nullptr;
  PyCFunction own = nullptr;  // Python's
};

PyMethodDef* definition_of(PyObject* function) {
  if (PyCFunction_Check(function)) return reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (Py_IS_TYPE(function, &PyMethodDescr_Type)) {
    return reinterpret_cast<PyMethodDescrObject*>(function)->d_method;
  }
  return nullptr;
}

template <typename To>
To as(PyCFunction function) {
  return reinterpret_cast<To>(reinterpret_cast<void*>(function));
}

template <typename From>
PyCFunction from(From function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

extern Function any_of, all_of, sorted_of, pop_of_set, fromkeys_of_dict;
extern Slot iter_of_set, iter_of_frozenset;

PyObject* iterate(PyObject* set) {
  return tell(set) ? reinterpret_cast<getiterfunc>(iter_of_set.own)(set) : nullptr;
}

PyObject* pop(PyObject* set, PyObject* none) { return tell(set) ? pop_of_set.own(set, none) : nullptr; }

PyObject* fromkeys(PyObject* type, PyObject* const* arguments, Py_ssize_t count) {
  if (count > 0 && !tell(arguments[0])) return nullptr;
  return as<_PyCFunctionFast>(fromkeys_of_dict.own)(type, arguments, count);
}

// What any, all and sorted make of a set does not depend on its order: they get a list, made without telling.
// The set itself if its class iterates in its own way, or nobody is told.
py::object listed(PyObject* items) {
  if (!is_watched(items) || Py_TYPE(items)->tp_iter != &iterate) {
    return py::reinterpret_borrow<py::object>(items);
  }
  watch().telling = true;
  auto list = py::reinterpret_steal<py::object>(PySequence_List(items));
  watch().telling = false;
  return list;
}

PyObject* any_item(PyObject* module, PyObject* items) {
  const py::object list = listed(items);
  return list ? any_of.own(module, list.ptr()) : nullptr;
}

PyObject* all_items(PyObject* module, PyObject* items) {
  const py::object list = listed(items);
  return list ? all_of.own(module, list.ptr()) : nullptr;
}

// Whether no two different values of these types are sorted alike, NaN apart.
bool sorts_in_one_way(PyObject* item) {
  if (PyTuple_CheckExact(item)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(item); ++i) {
      if (!sorts_in_one_way(PyTuple_GET_ITEM(item, i))) return false;
    }
    return true;
  }
  if (PyFloat_CheckExact(item)) return PyFloat_AS_DOUBLE(item) == PyFloat_AS_DOUBLE(item);
  return PyUnicode_CheckExact(item) || PyBytes_CheckExact(item) || PyLong_CheckExact(item) ||
         PyBool_Check(item);
}

bool has_key(PyObject* const* values, PyObject* names) {
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    const bool is_key = PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "key") == 0;
    if (is_key && values[i] != Py_None) return true;
  }
  return false;
}

PyObject* sorted(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto own = as<_PyCFunctionFastWithKeywords>(sorted_of.own);
  if (count != 1 || !is_watched(arguments[0])) return own(module, arguments, count, names);
  const py::object items = listed(arguments[0]);
  if (!items) return nullptr;
  bool is_told = !PyList_CheckExact(items.ptr()) || has_key(arguments + count, names);
  for (Py_ssize_t i = 0; !is_told && i < PyList_GET_SIZE(items.ptr()); ++i) {
    is_told = !sorts_in_one_way(PyList_GET_ITEM(items.ptr(), i));
  }
  if (is_told && !tell(arguments[0])) return nullptr;
  std::vector<PyObject*> given(arguments,
                               arguments + count + (names == nullptr ? 0 : PyTuple_GET_SIZE(names)));
  given[0] = items.ptr();
  return own(module, given.data(), count, names);
}

void** iter_slot(PyTypeObject* type) { return reinterpret_cast<void**>(&type->tp_iter); }

Slot iter_of_set{&PySet_Type, "__iter__", &iter_slot, reinterpret_cast<void*>(&iterate)};
Slot iter_of_frozenset{&PyFrozenSet_Type, "__iter__", &iter_slot, reinterpret_cast<void*>(&iterate)};
Function any_of{nullptr, "any", METH_O, &any_item};
Function all_of{nullptr, "all", METH_O, &all_items};
Function sorted_of{nullptr, "sorted", METH_FASTCALL | METH_KEYWORDS, from(&sorted)};
Function pop_of_set{"set", "pop", METH_NOARGS, &pop};
Function fromkeys_of_dict{"dict", "fromkeys", METH_FASTCALL | METH_CLASS, from(&fromkeys)};

#if PY_VERSION_HEX >= 0x030D0000
// From Python 3.13 on a list takes the items of a set without an iterator, and so does the text of a set.
extern Function extend_of_list;
extern Slot repr_of_set, init_of_list, vectorcall_of_list, concat_of_list;

PyObject* text(PyObject* set) {
  return tell(set) ? reinterpret_cast<reprfunc>(repr_of_set.own)(set) : nullptr;
}

PyObject* extend(PyObject* list, PyObject* items) {
  return tell(items) ? extend_of_list.own(list, items) : nullptr;
}

PyObject* concat(PyObject* list, PyObject* items) {
  return tell(items) ? reinterpret_cast<binaryfunc>(concat_of_list.own)(list, items) : nullptr;
}

int init(PyObject* list, PyObject* arguments, PyObject* named) {
  if (PyTuple_GET_SIZE(arguments) == 1 && !tell(PyTuple_GET_ITEM(arguments, 0))) return -1;
  return reinterpret_cast<initproc>(init_of_list.own)(list, arguments, named);
}

PyObject* make(PyObject* type, PyObject* const* arguments, std::size_t count, PyObject* names) {
  if (PyVectorcall_NARGS(count) == 1 && !tell(arguments[0])) return nullptr;
  return reinterpret_cast<vectorcallfunc>(vectorcall_of_list.own)(type, arguments, count, names);
}

void** repr_slot(PyTypeObject* type) { return reinterpret_cast<void**>(&type->tp_repr); }
void** init_slot(PyTypeObject* type) { return reinterpret_cast<void**>(&type->tp_init); }
void** vectorcall_slot(PyTypeObject* type) { return reinterpret_cast<void**>(&type->tp_vectorcall); }
void** concat_slot(PyTypeObject* type) {
  PySequenceMethods* const methods = type->tp_as_sequence;
  return methods == nullptr ? nullptr : reinterpret_cast<void**>(&methods->sq_inplace_concat);
}

Function extend_of_list{"list", "extend", METH_O, &extend};
Slot repr_of_set{&PySet_Type, "__repr__", &repr_slot, reinterpret_cast<void*>(&text)};
Slot repr_of_frozenset{&PyFrozenSet_Type, "__repr__", &repr_slot, reinterpret_cast<void*>(&text)};
Slot init_of_list{&PyList_Type, "__init__", &init_slot, reinterpret_cast<void*>(&init)};
Slot vectorcall_of_list{&PyList_Type, nullptr, &vectorcall_slot, reinterpret_cast<void*>(&make)};
Slot concat_of_list{&PyList_Type, "__iadd__", &concat_slot, reinterpret_cast<void*>(&concat)};

Slot* const slots[] = {&iter_of_set,  &iter_of_frozenset,  &repr_of_set,   &repr_of_frozenset,
                       &init_of_list, &vectorcall_of_list, &concat_of_list};
Function* const functions[] = {&any_of, &all_of, &sorted_of, &pop_of_set, &fromkeys_of_dict, &extend_of_list};
#else
Slot* const slots[] = {&iter_of_set, &iter_of_frozenset};
Function* const functions[] = {&any_of, &all_of, &sorted_of, &pop_of_set, &fromkeys_of_dict};
#endif

// Finds Python's own functions; throws std::runtime_error where others stand in their place.
void find_own() {
  const auto builtins = py::module_::import("builtins");
  for (Function* const function : functions) {
    const py::object owner =
        function->owner == nullptr ? py::object(builtins) : builtins.attr(function->owner);
    function->definition = definition_of(owner.attr(function->name).ptr());
    if (function->definition == nullptr || function->definition->ml_flags != function->flags) {
      throw std::runtime_error(std::string(function->name) +
                               " is not Python's own function, or of an unknown form");
    }
  }
  for (Function* const function : functions) function->own = function->definition->ml_meth;
  for (Slot* const slot : slots) slot->own = *slot->in(slot->base);
}

}  // namespace

void unwatch_sets() {
  if (!watch().on_order) return;
  for (const Slot* const slot : slots) exchange(slot->base, *slot, slot->ours, slot->own);
  for (const Function* const function : functions) function->definition->ml_meth = function->own;
  watch().on_order = py::object();
}

void watch_sets(py::object on_order) {
  unwatch_sets();
  if (sorted_of.own == nullptr) find_own();
  watch().thread = PyThread_get_thread_ident();
  watch().on_order = std::move(on_order);
  for (const Slot* const slot : slots) exchange(slot->base, *slot, slot->own, slot->ours);
  for (const Function* const function : functions) function->definition->ml_meth = function->ours;
}

Py_ssize_t slots_of_set(const py::object& items) {
  if (!PyAnySet_CheckExact(items.ptr())) return 0;
  const auto& set = *reinterpret_cast<PySetObject*>(items.ptr());
  return set.fill == set.used && set.finger == 0 ? set.mask + 1 : 0;
}

}  // namespace rekindle::python
