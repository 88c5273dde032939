#include "session/run/fused_kernel.h"

#include <ATen/ops/isclose.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstdint>

#include "session/lower/tensor_types.h"
#include "src/base/log.h"

namespace rekindle::session {
namespace {

using Trust = device::CompiledKernel::Trust;

// Of integers and truth values one in so many may differ: what they are made from lies at a border.
constexpr std::int64_t kBorders = 1000;
// A few elements may be those where a difference is what is left of larger numbers.
constexpr std::int64_t kFew = 8;
// Elements that are compared at once: what that takes of memory does not grow with the tensors.
constexpr std::int64_t kPart = 1 << 22;

// The relative error of a type.
double precision(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 0x1p-52;
    case at::kFloat:
      return 0x1p-23;
    case at::kHalf:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

// How far results of a compiled kernel are from PyTorch's, which round alike but for what another compiler
// makes of a tanh and the like, and for what follows from that.
struct Distances {
  std::int64_t far = 0;     // elements that nothing explains
  std::int64_t beside = 0;  // and those that differ by more than a few roundings
};

// `size`: what elements are added up from, as a rule.
Distances distances(const at::Tensor& ours, const at::Tensor& theirs, double size) {
  const auto beyond = [&](double relative) {
    const at::Tensor close =
        at::isclose(ours.to(at::kDouble), theirs.to(at::kDouble), relative, relative * size,
                    /*equal_nan=*/true);
    return close.logical_not_().sum().item<std::int64_t>();
  };
  const double rounding = precision(theirs.scalar_type());
  return {beyond(std::min(256 * rounding, 0.05)), beyond(4 * rounding)};
}

// The mean of what is finite.
double mean_size(const at::Tensor& x) {
  const at::Tensor sizes = x.to(at::kDouble).abs();
  return sizes.where(sizes.isfinite(), 0).mean().item<double>();
}

// Elements from `begin` on, in the order in which they lie in memory.
at::Tensor part_of(const at::Tensor& x, std::int64_t begin) {
  const at::Tensor row = x.as_strided({x.numel()}, {1});
  return row.narrow(0, begin, std::min(kPart, x.numel() - begin));
}

bool are_close(const at::Tensor& ours, const at::Tensor& theirs) {
  std::int64_t different = 0;
  Distances found;
  for (std::int64_t begin = 0; begin < theirs.numel(); begin += kPart) {
    const at::Tensor a = part_of(ours, begin), b = part_of(theirs, begin);
    if (!at::isFloatingType(theirs.scalar_type())) {
      different += a.ne(b).sum().item<std::int64_t>();
      continue;
    }
    const Distances here = distances(a, b, mean_size(b));
    found.far += here.far;
    found.beside += here.beside;
  }
  return different <= theirs.numel() / kBorders && found.far == 0 &&
         found.beside <= theirs.numel() / 4 + kFew;
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
  std::vector<at::Tensor> expected;
  try {
    expected = run_members(args, /*in_place=*/false);
  } catch (const c10::OutOfMemoryError&) {  // there may be room in a later run
    run_members(args, /*in_place=*/true);
    return;
  }
  std::string why = "computes something else";
  bool is_right = true;
  try {
    kernel.launch(parts_.kernel.blocks(), fusion::kThreads, words, parts_.device);
    for (std::size_t i = 0; i < expected.size() && is_right; ++i)
      is_right = are_close(args.out(i), expected[i]);
  } catch (const c10::OutOfMemoryError&) {
    return deliver(args, expected);
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
