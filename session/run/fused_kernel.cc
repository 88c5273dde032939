#include "session/run/fused_kernel.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isclose.h>

#include <algorithm>
#include <cstdint>

#include "session/lower/tensor_types.h"
#include "src/base/log.h"

namespace rekindle::session {
namespace {

using Trust = device::CompiledKernel::Trust;

// Results of a compiled kernel may differ from PyTorch's by what other instructions of a device's compiler
// round, and by what follows from that.
double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-12;
    case at::kFloat:
      return 1e-5;
    case at::kHalf:
      return 4e-3;
    default:
      return 3e-2;
  }
}

// Of integers and truth values one in so many may differ: what they are made from lies at a border.
constexpr std::int64_t kBorders = 1000;

bool are_close(const at::Tensor& ours, const at::Tensor& theirs) {
  if (!at::isFloatingType(theirs.scalar_type())) {
    const auto different = ours.ne(theirs).sum().item<std::int64_t>();
    return different <= theirs.numel() / kBorders;
  }
  const double relative = tolerance(theirs.scalar_type());
  const at::Tensor expected = theirs.to(at::kDouble), finite = expected.isfinite();
  const double largest = expected.where(finite, 0).abs().max().item<double>();
  return at::isclose(ours.to(at::kDouble), expected, relative, relative * largest, /*equal_nan=*/true)
      .all()
      .item<bool>();
}

struct Range {
  std::uintptr_t begin, end;
};

Range range_of(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.element_size()};
}

}  // namespace

FusedKernel::FusedKernel(Parts parts)
    : parts_(std::move(parts)),
      compiled_(device::compiled_kernel(parts_.kernel.source, fusion::kKernelName, parts_.device)) {}

bool FusedKernel::is_settled() const {
  if (compiled_ == nullptr) return true;
  return compiled_->is_done() && (compiled_->get() == nullptr || compiled_->trust() != Trust::kUntried);
}

bool FusedKernel::is_in_use() const { return compiled_ != nullptr && compiled_->trust() == Trust::kTried; }

void FusedKernel::run(const Args& args) {
  device::RuntimeKernel* const kernel = compiled_ == nullptr ? nullptr : compiled_->get();
  std::vector<std::int64_t> words;
  if (kernel == nullptr || compiled_->trust() == Trust::kRefused || !set_addresses(args, words)) {
    run_members(args, /*in_place=*/true);
  } else if (compiled_->trust() == Trust::kUntried) {
    try_kernel(args, *kernel, words);
  } else {
    kernel->launch(parts_.kernel.blocks(), fusion::kThreads, words, parts_.device);
  }
}

bool FusedKernel::set_addresses(const Args& args, std::vector<std::int64_t>& words) const {
  words = parts_.kernel.words;
  const std::size_t count = parts_.kernel.alignment.size();
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& tensor = i < parts_.operands ? args.in(i) : args.out(i - parts_.operands);
    if (!tensor.defined() || tensor.device() != parts_.device || tensor.is_conj() || tensor.is_neg())
      return false;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    if (address % parts_.kernel.alignment[i] != 0) return false;
    words[parts_.kernel.first_address + i] = static_cast<std::int64_t>(address);
  }
  return true;
}

bool FusedKernel::shares_memory_with_inputs(const Args& args, std::size_t output) const {
  const Range written = range_of(args.out(output));
  for (std::size_t i = 0; i < parts_.inputs; ++i) {
    if (!args.in(i).defined()) continue;
    const Range read = range_of(args.in(i));
    if (read.begin < written.end && written.begin < read.end) return true;
  }
  return false;
}

std::vector<at::Tensor> FusedKernel::run_members(const Args& args, bool in_place) const {
  std::vector<at::Tensor> slots(parts_.slots);
  std::vector<Held> held(parts_.slots);
  for (std::size_t i = 0; i < parts_.inputs; ++i) slots[1 + i] = args.in(i);
  if (in_place) {
    for (std::size_t i = 0; i < parts_.outputs.size(); ++i) {
      if (!shares_memory_with_inputs(args, i)) slots[parts_.outputs[i]] = args.out(i);
    }
  }
  for (const Member& member : parts_.members) {
    at::Tensor& made = slots[member.outputs[0]];
    if (!made.defined()) made = empty_of(member.layout, parts_.device);
    for (const Member::View& view : member.views) slots[view.slot] = slots[view.base].view(view.sizes);
    member.kernel(Args(slots.data(), held.data(), member.inputs.data(), member.outputs.data()));
    for (const std::uint32_t slot : member.release) slots[slot].reset();
  }
  std::vector<at::Tensor> results;
  for (const std::uint32_t slot : parts_.outputs) results.push_back(slots[slot]);
  if (in_place) deliver(args, results);
  return results;
}

void FusedKernel::deliver(const Args& args, const std::vector<at::Tensor>& results) const {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].const_data_ptr() != args.out(i).const_data_ptr()) args.out(i).copy_(results[i]);
  }
}

void FusedKernel::try_kernel(const Args& args, device::RuntimeKernel& kernel,
                             const std::vector<std::int64_t>& words) {
  const std::vector<at::Tensor> expected = run_members(args, /*in_place=*/false);
  std::string why = "computes something else";
  bool is_right = true;
  try {
    kernel.launch(parts_.kernel.blocks(), fusion::kThreads, words, parts_.device);
    for (std::size_t i = 0; i < expected.size() && is_right; ++i)
      is_right = are_close(args.out(i), expected[i]);
  } catch (const c10::Error& error) {
    is_right = false;
    why = std::string("does not run: ") + error.what_without_backtrace();
  }
  compiled_->set_trust(is_right ? Trust::kTried : Trust::kRefused);
  if (is_right) return;
  log_warning("the kernel of " + parts_.name + " for " + parts_.device.str() + " " + why +
              "; its ops are launched one by one");
  deliver(args, expected);
}

}  // namespace rekindle::session
