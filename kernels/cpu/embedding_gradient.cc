#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>

#include "kernels/backends.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::int64_t kZeroGrain = 1 << 18;  // bytes
constexpr std::int64_t kAddGrain = 1 << 14;   // elements
constexpr std::int64_t kLine = 64;            // bytes: threads do not share a cache line

template <typename T>
struct Rows {
  const T* dy;
  T* dweight;
  std::int64_t columns;
};

// Adds columns [begin, end) of every row of dy, in order.
template <typename T, typename Index>
REKINDLE_CPU_CLONES void add_rows(const Rows<T>& rows, const Index* indices, std::int64_t count,
                                  std::int64_t padding_idx, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (indices[i] == padding_idx) continue;
    const T* source = rows.dy + i * rows.columns;
    T* target = rows.dweight + indices[i] * rows.columns;
#pragma omp simd
    for (std::int64_t j = begin; j < end; ++j) target[j] = narrow<T>(widen(target[j]) + widen(source[j]));
  }
}

template <typename Index>
void check_indices(const Index* indices, std::int64_t count, std::int64_t vocabulary) {
  for (std::int64_t i = 0; i < count; ++i) {
    TORCH_CHECK_INDEX(indices[i] >= 0 && indices[i] < vocabulary, "embedding_gradient: index ", indices[i],
                      " at position ", i, " is out of range [0, ", vocabulary, ")");
  }
}

void fill_with_zeros(at::Tensor& tensor) {
  auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
  at::parallel_for(0, static_cast<std::int64_t>(tensor.nbytes()), kZeroGrain,
                   [&](std::int64_t begin, std::int64_t end) { std::memset(bytes + begin, 0, end - begin); });
}

}  // namespace

void embedding_gradient(const at::Tensor& dy, const at::Tensor& indices,
                        const EmbeddingGradientOptions& options, at::Tensor& dweight) {
  AT_DISPATCH_INDEX_TYPES(indices.scalar_type(), "embedding_gradient", [&] {
    const std::int64_t count = indices.numel();
    const index_t* index_data = indices.const_data_ptr<index_t>();
    check_indices(index_data, count, dweight.size(0));
    if (!options.accumulate) fill_with_zeros(dweight);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dy.scalar_type(), "embedding_gradient", [&] {
      // A thread owns columns, not rows: text uses few words often, and rows would share badly.
      const Rows<scalar_t> rows{dy.const_data_ptr<scalar_t>(), dweight.mutable_data_ptr<scalar_t>(),
                                dweight.size(1)};
      const std::int64_t line = kLine / static_cast<std::int64_t>(sizeof(scalar_t));
      const std::int64_t lines = (rows.columns + line - 1) / line;
      const std::int64_t grain =
          std::max<std::int64_t>(1, kAddGrain / std::max<std::int64_t>(1, count * line));
      at::parallel_for(0, lines, grain, [&](std::int64_t begin, std::int64_t end) {
        add_rows(rows, index_data, count, options.padding_idx, begin * line,
                 std::min(end * line, rows.columns));
      });
    });
  });
}

}  // namespace rekindle::kernels::cpu
