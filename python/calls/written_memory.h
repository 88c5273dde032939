// WrittenMemory: who else sees the memory that a graph writes.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rekindle::python {

// Compares ranges of addresses, [begin, end) from the first element of a tensor to its last, whatever
// storages they are in. Needs the GIL.
class WrittenMemory {
 public:
  // state: tensors. contents: tensors and other objects that the graph has as constants. bytes_of: called
  // with one of the others for its range. writes: positions in the state, or negative ones from the end of
  // the arguments. saves: whether a backward may read what the graph was given; then a write must not count
  // as one to another tensor, which it does where these are parts of one storage.
  WrittenMemory(const pybind11::list& state, const pybind11::list& contents,
                std::vector<std::ptrdiff_t> writes, bool saves, pybind11::object bytes_of);

  // The first of `writes` whose bytes another tensor has. Without arguments, looks at the state only.
  std::optional<std::ptrdiff_t> shared(const pybind11::list& arguments);

  // For Python's garbage collector.
  int traverse(visitproc visit, void* argument) const;
  void clear();

 private:
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;
  std::vector<std::uintptr_t> addresses() const;
  void look_at_fixed();
  bool shares(std::ptrdiff_t write, const std::vector<at::Tensor>& given) const;

  std::vector<pybind11::object> state_, contents_;
  std::vector<std::ptrdiff_t> writes_;
  bool saves_;
  pybind11::object bytes_of_;
  std::vector<std::uintptr_t> addresses_;  // when what follows was last found
  bool looked_ = false;
  std::vector<Range> fixed_;              // ranges of the state, then of the contents
  std::vector<const void*> storages_;     // of the state; null: none
  std::optional<std::ptrdiff_t> shared_;  // the first of `writes` that another of `fixed_` shares memory with
};

}  // namespace rekindle::python
