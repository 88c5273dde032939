// FirstTouch: makes memory ready that a step is about to take, on a core that has nothing else to do.
//
// An example: a Llama of 60 M parameters is called for the first time. Its gradients will take 240 MB, which
// the system gives as 60,000 empty pages, one interrupt each (1.6 us), in the first backward. The lookup of
// its graph comes before that, and runs Python on one core for 60 ms. Meanwhile a thread writes to these
// pages on another.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace at {
class Tensor;
}

namespace rekindle::device {

// The bytes of the gradients that a first backward will allocate for these tensors: of leaves of the CPU that
// want one and have none. Leaves out those whose gradients leave as they are made, to an optimizer's hook.
std::vector<std::size_t> gradient_bytes(std::span<const at::Tensor> leaves);

// Owns blocks until allocations of their sizes take them. Any thread may destroy it; one at a time may call
// it.
class FirstTouch {
 public:
  // Begins to write to blocks of these sizes. Leaves out small ones, and sizes that were freed before, for
  // which memory may be kept; all of them where the process has one core, or the heap no more memory.
  explicit FirstTouch(const std::vector<std::size_t>& bytes);
  // Frees what nobody has allocated.
  ~FirstTouch();
  FirstTouch(const FirstTouch&) = delete;
  FirstTouch& operator=(const FirstTouch&) = delete;

  // Ends writing, and lets allocations have the blocks (KeptMemory), written to or not.
  void stop();
  // The blocks' bytes.
  std::size_t bytes() const;

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };

  void write() const;
  void hand_over();
  void give_back();

  std::vector<Block> blocks_;
  std::atomic<bool> stopped_ = false;
  pid_t process_;  // in a forked child, the thread is not there
  std::thread thread_;
};

}  // namespace rekindle::device
