#include "python/calls/guard.h"

#include <torch/csrc/autograd/python_variable.h>

#include <unordered_map>

#include "python/calls/ambient.h"
#include "python/calls/guard_parts.h"
#include "python/calls/stand_ins.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

// Without the attribute look-up and the call that pybind11's `contains` makes: a guard asks for each name, at
// each call.
bool is_among(const py::tuple& names, PyObject* name) {
  const int found = PySequence_Contains(names.ptr(), name);
  if (found < 0) throw py::error_already_set();
  return found == 1;
}

}  // namespace

Guard::Guard(const py::list& containers, const py::list& tensors, const py::list& items,
             const py::list& cells, std::unordered_set<std::uintptr_t> weak)
    : ambient_(ambient_state()), weak_(std::move(weak)) {
  for (const py::handle container : containers) add(container, false, false);
  for (const py::handle tensor : tensors) add_tensor(tensor);
  add_items(items);
  for (const py::handle handle : cells) {
    const auto [object, how] = handle.cast<std::pair<py::object, py::object>>();
    add_cell(object, how);
  }
  weak_.clear();  // it was of these objects, whose ids others may get
}

void Guard::add_items(const py::list& items) {
  std::unordered_map<PyObject*, std::size_t> places;  // of containers
  for (const py::handle handle : items) {
    const auto [container, key] = handle.cast<std::pair<py::object, py::object>>();
    PyObject* table = table_of(container.ptr());
    if (table == nullptr) throw py::type_error("a guard's item is neither in a dict nor in a class");
    const std::size_t place = places.try_emplace(container.ptr(), items_.size()).first->second;
    if (place == items_.size()) items_.push_back({container, {}});
    PyObject* const value = stands_for(PyDict_GetItem(table, key.ptr()));
    items_[place].items.push_back({key, py::reinterpret_borrow<py::object>(value)});
  }
}

void Guard::add_cell(const py::object& object, const py::object& how) {
  if (py::isinstance<py::tuple>(how)) return add_but(object, how);
  if (!py::isinstance<py::str>(how)) {
    reads_.push_back({object, how, how(object).cast<py::tuple>()});
    return;
  }
  const auto name = how.cast<std::string>();
  if (name == "bytes") {
    if (THPVariable_Check(object.ptr())) add_tensor(object);
    contents_.push_back({object, bytes_of(object)});
  } else if (name == "content" || name == "object" || name == "weak") {
    add(object, name != "content", name == "weak");
  } else {
    throw py::value_error("a guard does not compare by '" + name + "'");
  }
}

void Guard::add(py::handle object, bool of_attributes, bool weak) {
  Container container;
  container.object = py::reinterpret_borrow<py::object>(object);
  if (weak) container.object = py::weakref(object);
  container.type = py::type::of(object);
  container.bases = py::reinterpret_borrow<py::object>(of_attributes ? nullptr : bases_of(object.ptr()));
  PyObject* const table = of_attributes ? attributes_of(object.ptr()) : object.ptr();
  if (of_attributes) container.table = table;
  container.of_attributes = of_attributes;
  container.weak = weak;
  if (of_attributes) {
    visit_slots(object.ptr(), [&](std::ptrdiff_t offset) {
      PyObject* const content = in_slot(object.ptr(), offset);
      container.slots.emplace_back(offset, held(content));
    });
  }
  if (table != nullptr) container.version = version_of(table);
  if (table != nullptr && PyAnySet_Check(table)) {
    container.items.push_back({in_order(table)});
  } else if (table != nullptr) {
    visit_parts(table, [&](PyObject* part) {
      container.items.push_back(held(part));
      return true;
    });
  }
  containers_.push_back(std::move(container));
}

void Guard::add_but(const py::object& object, const py::tuple& unread) {
  add(object, true, false);
  Container& container = containers_.back();
  container.unread = unread;
  std::vector<Part> read;
  for (std::size_t i = 0; i + 1 < container.items.size(); i += 2) {
    if (is_among(unread, container.items[i].object.ptr())) continue;
    read.push_back(container.items[i]);
    read.push_back(container.items[i + 1]);
  }
  container.items = std::move(read);
}

Guard::Part Guard::held(PyObject* part) const {
  if (part == nullptr || weak_.empty() || !weak_.contains(reinterpret_cast<std::uintptr_t>(part)))
    return {py::reinterpret_borrow<py::object>(part)};
  return {py::weakref(part), true};
}

void Guard::add_tensor(py::handle object) {
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  tensors_.push_back({py::reinterpret_borrow<py::object>(object), tensor.scalar_type(), tensor.device(),
                      tensor.sizes().vec(), tensor.strides().vec(), tensor.requires_grad()});
}

bool Guard::same(const Part& part, PyObject* now) {
  return part.weak ? now != nullptr && alive(part.object, true).ptr() == now : part.object.ptr() == now;
}

bool Guard::same(const Container& container) {
  const py::object held = container.weak ? alive(container.object, true) : py::object();
  PyObject* const object = container.weak ? held.ptr() : container.object.ptr();
  if (object == nullptr || Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(container.type.ptr()))
    return false;
  PyObject* table = object;
  if (container.of_attributes) {
    for (const auto& [offset, content] : container.slots) {
      if (!same(content, in_slot(object, offset))) return false;
    }
    table = attributes_of(object);
    if (table != container.table) return false;
    if (table == nullptr) return true;
  } else if (bases_of(object) != container.bases.ptr()) {
    return false;
  }
  const std::uint64_t version = version_of(table);
  if (version != 0 && version == container.version) return true;
  if (PyAnySet_Check(table)) return same_order(table, container.items[0].object.ptr());
  std::size_t i = 0;
  bool at_name = true, is_unread = false;  // where some attributes are not compared
  const bool equal = visit_parts(table, [&](PyObject* part) {
    if (!container.unread.empty()) {
      if (at_name) is_unread = is_among(container.unread, part);
      at_name = !at_name;
      if (is_unread) return true;
    }
    return i < container.items.size() && same(container.items[i++], part);
  });
  if (!equal || i != container.items.size()) return false;
  container.version = version;
  return true;
}

bool Guard::same(const Items& items) {
  PyObject* const table = table_of(items.container.ptr());
  const std::uint64_t version = version_of(table);
  if (version != 0 && version == items.version) return true;
  for (const auto& [key, value] : items.items) {
    if (stands_for(PyDict_GetItem(table, key.ptr())) != value.ptr()) return false;
  }
  items.version = any_stand_ins ? 0 : version;  // what stands for a value may go and leave its dict as it is
  return true;
}

bool Guard::same(const Content& content) {
  return content.bytes.has_value() && bytes_of(content.object) == content.bytes;
}

bool Guard::same(const Read& read) {
  const auto now = read.function(read.object).cast<py::tuple>();
  if (now.size() != read.parts.size()) return false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const py::object old = read.parts[i], part = now[i];
    const bool by_value = PyLong_CheckExact(old.ptr()) || PyUnicode_CheckExact(old.ptr());
    if (!part.is(old) && !(by_value && Py_TYPE(old.ptr()) == Py_TYPE(part.ptr()) && part.equal(old)))
      return false;
  }
  return true;
}

bool Guard::same(const TensorState& state) {
  const at::Tensor& tensor = THPVariable_Unpack(state.tensor.ptr());
  return tensor.scalar_type() == state.dtype && tensor.requires_grad() == state.requires_grad &&
         tensor.device() == state.device && tensor.sizes() == state.sizes &&
         tensor.strides() == state.strides;
}

bool Guard::check() const {
  for (const Container& container : containers_) {
    if (!same(container)) return false;
  }
  for (const TensorState& tensor : tensors_) {
    if (!same(tensor)) return false;
  }
  for (const Items& items : items_) {
    if (!same(items)) return false;
  }
  for (const Content& content : contents_) {
    if (!same(content)) return false;
  }
  for (const Read& read : reads_) {
    if (!same(read)) return false;
  }
  return is_ambient_state(ambient_);
}

int Guard::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  for (const Container& container : containers_) {
    for (const py::object* part : {&container.object, &container.type, &container.bases})
      Py_VISIT(part->ptr());
    for (const Part& part : container.items) Py_VISIT(part.object.ptr());
    for (const auto& [offset, part] : container.slots) Py_VISIT(part.object.ptr());
  }
  for (const auto& [container, items, version] : items_) {
    Py_VISIT(container.ptr());
    for (const Item& item : items) {
      for (const py::object* part : {&item.key, &item.value}) Py_VISIT(part->ptr());
    }
  }
  for (const Content& content : contents_) Py_VISIT(content.object.ptr());
  for (const Read& read : reads_) {
    Py_VISIT(read.object.ptr());
    Py_VISIT(read.function.ptr());
    Py_VISIT(read.parts.ptr());
  }
  for (const TensorState& state : tensors_) Py_VISIT(state.tensor.ptr());
  return 0;
}

void Guard::clear() {
  ambient_.clear();                                // what check() never finds again
  const auto containers = std::move(containers_);  // they go when no table of this guard holds them any more
  const auto items = std::move(items_);
  const auto contents = std::move(contents_);
  const auto reads = std::move(reads_);
  const auto tensors = std::move(tensors_);
}

}  // namespace rekindle::python
