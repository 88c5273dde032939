// CallLayout: what tells calls of a module apart, as numbers: a fast stand-in for
// python/rekindle/graphs/call_key.py.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rekindle::python {

// Calls of one layout have equal keys in Python. Calls of different layouts may have equal keys as well. Runs
// no code of Python's. Needs the GIL.
class CallLayout {
 public:
  // Lets objects of a class be described by their class alone, as Python does. The caller keeps it alive.
  void describe_by_class(PyObject* type) { by_class_.insert(type); }
  // Lets containers of these be told from others like them. Borrowed: a container that takes the place of one
  // that is gone is told from others, too.
  void tell_apart(std::unordered_set<PyObject*> containers) { told_apart_ = std::move(containers); }
  // Describes a call; false for one that only Python can describe: with an argument of another class than the
  // plain ones of Python and PyTorch and those of describe_by_class, with a container in itself, or while
  // torch.jit traces. args: a tuple; kwargs: a dict.
  bool describe(PyObject* args, PyObject* kwargs);

  const std::vector<std::int64_t>& words() const { return words_; }
  // Borrowed: the distinct tensors of the call, in order of first appearance.
  const std::vector<PyObject*>& tensors() const { return tensors_; }

 private:
  bool add(PyObject* value, int depth);
  bool add_plain(PyObject* value);
  bool add_text(PyObject* text);
  bool add_tensor(PyObject* tensor);
  bool add_container(PyObject* container, int depth);
  bool add_items(PyObject* container, int depth);
  bool add_ordered(PyObject* container, int depth);
  std::int64_t position_of(PyObject* tensor);
  // Each value starts with the kind of what follows, so that no two calls run into each other.
  template <typename... Words>
  bool put(Words... words) {
    (words_.push_back(static_cast<std::int64_t>(words)), ...);
    return true;
  }

  std::vector<std::int64_t> words_;
  std::vector<PyObject*> tensors_;
  std::vector<PyObject*> containers_;  // that can change, in order of first appearance
  std::vector<bool> is_whole_;         // of each container: its items have been described
  std::unordered_set<PyObject*> by_class_;
  std::unordered_set<PyObject*> told_apart_;
};

}  // namespace rekindle::python
