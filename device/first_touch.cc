#include "device/first_touch.h"

#include <ATen/core/Tensor.h>
#include <sched.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <numeric>
#include <system_error>

#include "device/cpu_allocator.h"

namespace rekindle::device {
namespace {

constexpr std::size_t kPage = 4096;  // or larger; then some are written to twice

bool has_idle_core() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 1;
}

bool will_have_gradient(const at::Tensor& leaf) {
  return leaf.device().is_cpu() && leaf.layout() == at::kStrided && leaf.has_storage() && leaf.is_leaf() &&
         leaf.requires_grad() && !leaf.grad().defined() &&
         torch::autograd::impl::post_acc_grad_hooks(leaf) == nullptr;
}

}  // namespace

std::vector<std::size_t> gradient_bytes(std::span<const at::Tensor> leaves) {
  std::vector<std::size_t> bytes;
  for (const at::Tensor& leaf : leaves) {
    if (will_have_gradient(leaf)) bytes.push_back(leaf.nbytes());
  }
  return bytes;
}

FirstTouch::FirstTouch(const std::vector<std::size_t>& bytes) : process_(getpid()) {
  KeptMemory* const kept = bytes.empty() || !has_idle_core() ? nullptr : CpuAllocator::install().kept();
  if (kept == nullptr) return;
  for (const std::size_t size : bytes) {
    if (size < KeptMemory::kLarge || kept->was_freed(size)) continue;
    void* const memory = kept->allocate_ahead(size);
    if (memory == nullptr) break;
    blocks_.push_back({memory, size});
  }
  if (blocks_.empty()) return;
  try {
    thread_ = std::thread([this] { write(); });
  } catch (const std::system_error&) {  // there are too many threads: the backward does it
    hand_over();
    give_back();
  }
}

FirstTouch::~FirstTouch() {
  stop();
  give_back();
}

void FirstTouch::give_back() {
  for (const Block& block : blocks_) CpuAllocator::install().kept()->withdraw(block.memory, block.bytes);
  blocks_.clear();
}

void FirstTouch::stop() {
  if (!thread_.joinable()) return;
  stopped_.store(true, std::memory_order_relaxed);
  if (process_ == getpid()) {
    thread_.join();
  } else {
    thread_.detach();
  }
  hand_over();
}

void FirstTouch::hand_over() {
  for (const Block& block : blocks_) CpuAllocator::install().kept()->expect(block.memory, block.bytes);
}

std::size_t FirstTouch::bytes() const {
  return std::accumulate(blocks_.begin(), blocks_.end(), std::size_t{0},
                         [](std::size_t sum, const Block& block) { return sum + block.bytes; });
}

void FirstTouch::write() const {
  for (const Block& block : blocks_) {
    for (std::size_t at = 0; at < block.bytes; at += kPage) {
      if (stopped_.load(std::memory_order_relaxed)) return;
      static_cast<volatile char*>(block.memory)[at] = 0;
    }
  }
}

}  // namespace rekindle::device
