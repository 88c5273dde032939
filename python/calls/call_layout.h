// CallLayout: what tells calls of a module apart, as numbers: a fast stand-in for
// python/rekindle/graphs/call_key.py.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace rekindle::python {

// Calls of one layout have equal keys in Python. Calls of different layouts may have equal keys as well. Runs
// no code of Python's. Needs the GIL.
class CallLayout {
 public:
  // Lets objects of a class be described by their class alone, as Python does. The caller keeps it alive.
  void describe_by_class(PyObject* type) { by_class_.insert(type); }
  // Describes a call; false for one that only Python can describe: with an argument of another class than the
  // plain ones of Python and PyTorch and those of describe_by_class, or while torch.jit traces. args: a
  // tuple; kwargs: a dict.
  bool describe(PyObject* args, PyObject* kwargs);

  const std::vector<std::int64_t>& words() const { return words_; }
  // Borrowed: the distinct tensors of the call, in order of first appearance.
  const std::vector<PyObject*>& tensors() const { return tensors_; }

 private:
  bool add(PyObject* value, int depth);
  bool add_plain(PyObject* value);
  bool add_text(PyObject* text);
  bool add_tensor(PyObject* tensor);
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
  std::unordered_set<PyObject*> by_class_;
};

}  // namespace rekindle::python
