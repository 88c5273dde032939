// CpuAllocator: the allocator that stands before PyTorch's for tensors of the CPU, in a process that has a
// plan for it.
//
// An example: a convolution runs in an OperatorMemory, and gets the arena's memory for its result. The
// optimizer, on the same thread, makes a temporary of 150 MB at each step, and gets KeptMemory. A tensor of
// four numbers comes from PyTorch's allocator, one test of a thread's variable later.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <optional>

#include "device/kept_memory.h"

namespace rekindle::device {

// Frees by address alone, so that raw_allocate(), by which oneDNN takes its buffers, gives such memory, too.
class CpuAllocator final : public c10::Allocator {
 public:
  // The one of the process, made and set by the first call; stays. Thread-safe.
  static CpuAllocator& install();
  // Gives memory that is kept back to the system; returns its bytes. Installs nothing.
  static std::size_t release();
  // The bytes that are kept now; 0 where it is not installed.
  static std::size_t kept_bytes();

  // Null where the allocator that was there frees by more than an address.
  KeptMemory* kept() { return kept_ ? &*kept_ : nullptr; }

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  bool is_simple_data_ptr(const c10::DataPtr& data) const override;

 private:
  explicit CpuAllocator(c10::Allocator* inner);
  static void free_any(void* memory);

  c10::Allocator* const inner_;
  std::optional<KeptMemory> kept_;
};

}  // namespace rekindle::device
