// CallTable: what is kept for calls of a module, found by their layout.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "python/calls/call_layout.h"

namespace rekindle::python {

// Forgets all when it is full. Needs the GIL.
class CallTable {
 public:
  // Returns what is kept for calls of this one's layout, and appends the call's distinct tensors to
  // `tensors`, in order of first appearance. Returns None, and appends nothing, where nothing is kept.
  pybind11::object find(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::list tensors);
  // Keeps an object for all calls of the layout of this one, if it has one.
  void keep(const pybind11::tuple& args, const pybind11::dict& kwargs, const pybind11::object& kept);
  // Lets calls be found whose arguments are of a class that tells of them all that a key does.
  void take_by_class(const pybind11::type& type);
  // Tells calls with these containers, by their ids, from calls with others like them, from now on.
  void tell_apart(const std::vector<std::uintptr_t>& containers);
  // Keeps this object for no calls any more.
  void forget(const pybind11::object& kept);

  // For Python's garbage collector.
  int traverse(visitproc visit, void* argument) const;
  void clear();

 private:
  struct Hash {
    std::size_t operator()(const std::vector<std::int64_t>& words) const;
  };
  using Kept = std::unordered_map<std::vector<std::int64_t>, pybind11::object, Hash>;

  void forget_all();

  CallLayout layout_;                      // of the call at hand
  std::vector<pybind11::object> classes_;  // those that the layout tells by
  Kept kept_;
  Kept::const_iterator last_ = kept_.end();  // the one that was found last
};

}  // namespace rekindle::python
