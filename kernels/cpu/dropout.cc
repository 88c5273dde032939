#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>

#include "kernels/backends.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr int kStateWords = at::MERSENNE_STATE_N;
constexpr int kShiftWords = at::MERSENNE_STATE_M;
constexpr std::int64_t kDropoutGrain = 1 << 15;

REKINDLE_INLINE std::uint32_t twist(std::uint32_t u, std::uint32_t v) {
  const std::uint32_t mixed = (u & 0x80000000u) | (v & 0x7fffffffu);
  return (mixed >> 1) ^ ((0u - (v & 1u)) & 0x9908b0dfu);
}

// The next 624 words of MT19937's state. Each loop reads only what is at
// least 227 words away, or not yet replaced.
REKINDLE_CPU_CLONES void advance_state(std::uint32_t* state) {
  constexpr int kFirst = kStateWords - kShiftWords;
#pragma omp simd
  for (int i = 0; i < kFirst; ++i) state[i] = state[i + kShiftWords] ^ twist(state[i], state[i + 1]);
#pragma omp simd safelen(64)
  for (int i = kFirst; i < kStateWords - 1; ++i) state[i] = state[i - kFirst] ^ twist(state[i], state[i + 1]);
  state[kStateWords - 1] = state[kShiftWords - 1] ^ twist(state[kStateWords - 1], state[0]);
}

REKINDLE_INLINE std::uint32_t temper(std::uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// A draw is 53 bits: 21 of one word, above the next. Whether it is less
// than the threshold, without 64-bit lanes.
REKINDLE_CPU_CLONES void compare_draws(const std::uint32_t* words, std::int64_t draws,
                                       std::uint64_t threshold, std::uint8_t* mask) {
  const auto high_threshold = static_cast<std::uint32_t>(threshold >> 32);
  const auto low_threshold = static_cast<std::uint32_t>(threshold);
#pragma omp simd
  for (std::int64_t i = 0; i < draws; ++i) {
    const std::uint32_t high = temper(words[2 * i]) & 0x1fffffu;
    const std::uint32_t low = temper(words[2 * i + 1]);
    const std::uint32_t equal_and_less = (high == high_threshold ? 1u : 0u) & (low < low_threshold ? 1u : 0u);
    mask[i] = static_cast<std::uint8_t>((high < high_threshold ? 1u : 0u) | equal_and_less);
  }
}

// The words of a generator in the order in which it hands them out.
class WordStream {
 public:
  explicit WordStream(at::mt19937_data_pod& engine) : engine_(engine) {}

  // Fills the mask from the stream; leaves the engine as if each word had been asked for on its own.
  void sample(std::int64_t draws, std::uint64_t threshold, std::uint8_t* mask) {
    while (draws > 0) {
      const std::int64_t whole = std::min<std::int64_t>(draws, left() / 2);
      compare_draws(engine_.state_.data() + engine_.next_, whole, threshold, mask);
      skip(static_cast<int>(2 * whole));
      draws -= whole;
      mask += whole;
      if (draws == 0) return;
      // A draw may straddle two states.
      const std::uint32_t pair[2] = {take(), take()};
      compare_draws(pair, 1, threshold, mask);
      --draws;
      ++mask;
    }
  }

 private:
  // ATen's count is one more than the words that remain.
  int left() const { return engine_.left_ - 1; }
  void skip(int words) {
    engine_.left_ -= words;
    engine_.next_ += words;
  }
  std::uint32_t take() {
    if (left() == 0) {
      advance_state(engine_.state_.data());
      engine_.left_ = kStateWords + 1;
      engine_.next_ = 0;
    }
    const std::uint32_t word = engine_.state_[engine_.next_];
    skip(1);
    return word;
  }

  at::mt19937_data_pod& engine_;
};

void sample_into(at::CPUGeneratorImpl& generator, double keep, std::int64_t count, std::uint8_t* mask) {
  const auto threshold = static_cast<std::uint64_t>(std::ceil(std::ldexp(keep, 53)));
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  WordStream(data).sample(count, threshold, mask);
  engine.set_data(data);
  generator.set_engine(engine);
}

// Whether this ATen draws as sample_into does: on some processors it uses
// a vendor library's generator instead.
bool aten_draws_alike() {
  constexpr std::int64_t kDraws = 2 * kStateWords + 1;
  constexpr double kKeep = 0.7;
  std::array<std::uint8_t, kDraws> ours;
  auto our_generator = at::detail::createCPUGenerator(1);
  auto their_generator = our_generator.clone();
  sample_into(*our_generator.get<at::CPUGeneratorImpl>(), kKeep, kDraws, ours.data());
  at::Tensor theirs = at::empty({kDraws}, at::kBool);
  theirs.bernoulli_(kKeep, their_generator);
  return std::memcmp(ours.data(), theirs.const_data_ptr<bool>(), kDraws) == 0 &&
         our_generator.get_state().equal(their_generator.get_state());
}

// Bools as numbers 0 and 1.
std::uint8_t* bytes_of(bool* mask) { return reinterpret_cast<std::uint8_t*>(mask); }
const std::uint8_t* bytes_of(const bool* mask) { return reinterpret_cast<const std::uint8_t*>(mask); }

template <typename T>
REKINDLE_CPU_CLONES void multiply(const T* x, const std::uint8_t* mask, T noise, std::int64_t count, T* y) {
  using A = Accumulator<T>;
  const A kept = widen(noise);
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(widen(x[i]) * (kept * static_cast<A>(mask[i])));
}

}  // namespace

bool dropout_sample_mask(at::Tensor& mask, double p) {
  static const bool alike = aten_draws_alike();
  if (!alike) return false;
  auto generator = at::detail::getDefaultCPUGenerator();
  sample_into(*generator.get<at::CPUGeneratorImpl>(), 1 - p, mask.numel(),
              bytes_of(mask.mutable_data_ptr<bool>()));
  return true;
}

void dropout_from_mask(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "dropout_from_mask", [&] {
    using A = Accumulator<scalar_t>;
    // Eager divides a tensor of ones by 1 - p in x's dtype; with p = 1 it multiplies by zero.
    const auto noise = p == 1 ? scalar_t(0) : static_cast<scalar_t>(A(1) / static_cast<A>(1 - p));
    const auto* x_data = x.const_data_ptr<scalar_t>();
    const auto* mask_data = bytes_of(mask.const_data_ptr<bool>());
    auto* y_data = y.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, x.numel(), kDropoutGrain, [&](std::int64_t begin, std::int64_t end) {
      multiply(x_data + begin, mask_data + begin, noise, end - begin, y_data + begin);
    });
  });
}

}  // namespace rekindle::kernels::cpu
