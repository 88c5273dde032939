// Guard: is everything that a variant was made for still the same object?
// One flat pass of pointer comparisons.
//
// A guard never says yes to a change; it may say no to a harmless one (an equal but new object), and the
// caller then looks the call up by content again. What another thread's export replaces is no change
// (stand_ins.h). Needs the GIL. Holds references to what it compares with, which the garbage collector of
// Python sees.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/calls/content_bytes.h"

namespace rekindle::python {

class Guard {
 public:
  // containers: dicts and the dicts of classes (order and identity of keys and values are compared), lists,
  // tuples, sets (in the order of their items) and functions (code, names, defaults, attributes and what the
  // closure holds). Of a class its bases are compared, too. tensors: parameters and buffers, compared by
  // dtype, device, sizes, strides and requires_grad. items: (dict or class, key) pairs; the value, or its
  // absence, is compared by identity. cells: (object, how) pairs, where `how` is "content" for what a
  // container is; "object" for its class, its slots, the dict of its attributes and what that holds;
  // "weak" for the same of an object that is not kept alive; a tuple of names for the
  // same but for attributes of these names, there or not; "bytes" for a tensor or another object with a
  // buffer (NumPy arrays), of which layout and bytes are compared; or a function that returns a tuple of what
  // no other way shows, compared by identity (integers and texts by value).
  // weak: ids of objects that are not kept alive wherever containers and cells hold them.
  Guard(const pybind11::list& containers, const pybind11::list& tensors, const pybind11::list& items,
        const pybind11::list& cells, std::unordered_set<std::uintptr_t> weak = {});

  // True when all of these and the ambient state are as they were. Throws what a function of `cells` raises.
  bool check() const;

  // For Python's garbage collector: all objects that are held; and none any more, when check() is false.
  int traverse(visitproc visit, void* argument) const;
  void clear();

 private:
  struct Part {
    pybind11::object object;  // a weak reference to the part if `weak`
    bool weak = false;
  };
  struct Container {
    pybind11::object object;       // a weak reference if `weak`
    pybind11::object type, bases;  // its class; of a class, its method resolution order
    pybind11::tuple unread;        // names of attributes that are not among `items`
    const void* table = nullptr;   // where the dict of its attributes is: compared, never followed
    bool of_attributes = false, weak = false;
    std::vector<Part> items;  // dict: key, value, key, value, ...; set: a tuple of its items
    std::vector<std::pair<std::ptrdiff_t, Part>> slots;  // where in the object, and what is there
    mutable std::uint64_t version = 0;  // of a dict when it was last found unchanged; 0: not known
  };
  struct Item {
    pybind11::object key, value;  // value: null when the key was absent
  };
  struct Items {
    pybind11::object container;
    std::vector<Item> items;
    mutable std::uint64_t version = 0;  // of the dict when its items were last found unchanged; 0: not known
  };
  struct Content {
    pybind11::object object;
    std::optional<ContentBytes> bytes;  // none: they cannot be read
  };
  struct Read {
    pybind11::object object, function;
    pybind11::tuple parts;
  };
  struct TensorState {
    pybind11::object tensor;
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<std::int64_t> sizes, strides;
    bool requires_grad;
  };
  void add(pybind11::handle object, bool of_attributes, bool weak);
  void add_but(const pybind11::object& object, const pybind11::tuple& unread);
  Part held(PyObject* part) const;
  void add_tensor(pybind11::handle tensor);
  void add_items(const pybind11::list& items);
  void add_cell(const pybind11::object& object, const pybind11::object& how);
  static bool same(const Part& part, PyObject* now);
  static bool same(const Container& container);
  static bool same(const TensorState& state);
  static bool same(const Items& items);
  static bool same(const Content& content);
  static bool same(const Read& read);

  std::vector<Container> containers_;
  std::vector<Items> items_;
  std::vector<Content> contents_;
  std::vector<Read> reads_;
  std::vector<TensorState> tensors_;
  std::vector<std::int64_t> ambient_;
  std::unordered_set<std::uintptr_t> weak_;
};

}  // namespace rekindle::python
