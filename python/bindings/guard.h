// Guard: is everything that a variant was made for still the same object?
// One flat pass of pointer comparisons.
//
// A guard never says yes to a change; it may say no to a harmless one (an equal but new object), and the
// caller then looks the call up by content again. What another thread's export replaces is no change
// (stand_ins.h). Needs the GIL. Holds references to what it compares with.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/digest.h"

namespace rekindle::python {

// Process-wide switches that change what a forward means: grad mode and inference mode, autocast per device,
// default dtype, determinism, matmul, convolution and attention settings, mode stacks, saved-tensor hooks,
// tracing, anomaly mode, forward-mode differentiation.
std::vector<std::int64_t> ambient_state();

class Guard {
 public:
  // containers: dicts and the dicts of classes (order and identity of keys and values are compared), lists,
  // tuples, sets (in the order of their items), functions (code, defaults, attributes and what the closure
  // holds), and any other object, of which only the class is compared. Of a class its bases are, too.
  // tensors: parameters and buffers, compared by dtype, device, sizes, strides and requires_grad. items:
  // (dict or class, key) pairs; the value, or its absence, is compared by identity. contents: tensors and
  // other objects with a buffer (NumPy arrays), compared by their bytes. reads: (object, function) pairs;
  // function(object) returns a tuple of what no other way shows, compared by identity (integers by value).
  Guard(const pybind11::list& containers, const std::vector<at::Tensor>& tensors, const pybind11::list& items,
        const pybind11::list& contents, const pybind11::list& reads);

  // True when all of these and the ambient state are as they were. Throws what a function of `reads` raises.
  bool check() const;

 private:
  struct Container {
    pybind11::object object;
    pybind11::object type, bases;         // its class; of a class, its method resolution order
    std::vector<pybind11::object> items;  // dict: key, value, key, value, ...; set: a tuple of its items
    mutable std::uint64_t version = 0;    // of a dict when it was last found unchanged; 0: not known
  };
  struct Item {
    pybind11::object container, key, value;  // value: null when the key was absent
  };
  struct Content {
    pybind11::object object;
    std::optional<Digest> digest;  // none: the bytes cannot be read
  };
  struct Read {
    pybind11::object object, function;
    pybind11::tuple parts;
  };
  struct TensorState {
    at::Tensor tensor;
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<std::int64_t> sizes, strides;
    bool requires_grad;
  };
  void add(const at::Tensor& tensor);
  static bool same(const Container& container);
  static bool same(const TensorState& state);
  static bool same(const Item& item);
  static bool same(const Content& content);
  static bool same(const Read& read);

  std::vector<Container> containers_;
  std::vector<Item> items_;
  std::vector<Content> contents_;
  std::vector<Read> reads_;
  std::vector<TensorState> tensors_;
  std::vector<std::int64_t> ambient_;
};

}  // namespace rekindle::python
