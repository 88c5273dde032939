#include "python/calls/call_table.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <utility>

namespace rekindle::python {

namespace py = pybind11;

namespace {
constexpr std::size_t kMost = 2048;  // twice as many as there are kinds: a kind may be of several layouts
constexpr std::size_t kMostClasses = 64;
}  // namespace

std::size_t CallTable::Hash::operator()(const std::vector<std::int64_t>& words) const {
  std::size_t hash = words.size();
  for (const std::int64_t word : words) hash = c10::hash_combine(hash, static_cast<std::size_t>(word));
  return hash;
}

py::object CallTable::find(const py::tuple& args, const py::dict& kwargs, py::list tensors) {
  if (kept_.empty() || !layout_.describe(args.ptr(), kwargs.ptr())) return py::none();
  if (last_ == kept_.end() || last_->first != layout_.words()) last_ = kept_.find(layout_.words());
  if (last_ == kept_.end()) return py::none();
  for (PyObject* const tensor : layout_.tensors()) tensors.append(py::handle(tensor));
  return last_->second;
}

void CallTable::keep(const py::tuple& args, const py::dict& kwargs, const py::object& kept) {
  if (!layout_.describe(args.ptr(), kwargs.ptr())) return;
  if (kept_.size() >= kMost) forget_all();
  auto known = kept_.try_emplace(layout_.words()).first;
  const py::object before = std::exchange(known->second, kept);
  last_ = known;
}

void CallTable::take_by_class(const py::type& type) {
  if (std::ranges::any_of(classes_, [&](const py::object& known) { return known.is(type); })) return;
  if (classes_.size() >= kMostClasses) return;
  classes_.push_back(type);
  layout_.describe_by_class(type.ptr());
}

void CallTable::tell_apart(const std::vector<std::uintptr_t>& containers) {
  std::unordered_set<PyObject*> found;
  for (const std::uintptr_t id : containers) found.insert(reinterpret_cast<PyObject*>(id));
  layout_.tell_apart(std::move(found));
}

void CallTable::forget(const py::object& kept) {
  last_ = kept_.end();
  std::erase_if(kept_, [&](const auto& entry) { return entry.second.is(kept); });  // the caller has it still
}

int CallTable::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  for (const auto& [words, kept] : kept_) Py_VISIT(kept.ptr());
  for (const py::object& type : classes_) Py_VISIT(type.ptr());
  return 0;
}

void CallTable::clear() {
  forget_all();
  layout_ = {};
  const auto before = std::exchange(classes_, {});
}

void CallTable::forget_all() {
  const Kept before =
      std::exchange(kept_, {});  // goes when the table is whole: that may run code of Python's
  last_ = kept_.end();
}

}  // namespace rekindle::python
