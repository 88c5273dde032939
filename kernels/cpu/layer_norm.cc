#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "kernels/backends.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::int64_t kLayerNormBlock = 1024;  // summed in the accumulator's type, the blocks in double
constexpr std::int64_t kColumnGrain = 256;

template <typename A>
struct Moments {
  A mean;
  A inv_std;
};

template <typename T>
REKINDLE_CPU_CLONES Moments<Accumulator<T>> row_moments(const T* x, std::int64_t columns, double epsilon) {
  using A = Accumulator<T>;
  double sum = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kLayerNormBlock) {
    const std::int64_t end = std::min(begin + kLayerNormBlock, columns);
    A block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t i = begin; i < end; ++i) block_sum += widen(x[i]);
    sum += block_sum;
  }
  const A mean = static_cast<A>(sum / static_cast<double>(columns));
  // The mean was summed with rounding; what is left over corrects it, and the variance too.
  double squares = 0;
  double rest = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kLayerNormBlock) {
    const std::int64_t end = std::min(begin + kLayerNormBlock, columns);
    A block_squares = 0;
    A block_rest = 0;
#pragma omp simd reduction(+ : block_squares, block_rest)
    for (std::int64_t i = begin; i < end; ++i) {
      const A centred = widen(x[i]) - mean;
      block_squares += centred * centred;
      block_rest += centred;
    }
    squares += block_squares;
    rest += block_rest;
  }
  const double correction = rest / static_cast<double>(columns);
  const double variance = squares / static_cast<double>(columns) - correction * correction;
  return {static_cast<A>(mean + correction), static_cast<A>(1.0 / std::sqrt(variance + epsilon))};
}

template <typename T>
REKINDLE_CPU_CLONES void normalize_row(const T* x, const T* weight, const T* bias, std::int64_t columns,
                                       const Moments<Accumulator<T>>& moments, T* y) {
  const auto mean = moments.mean;
  const auto scale = moments.inv_std;
  if (weight != nullptr && bias != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      y[i] = narrow<T>((widen(x[i]) - mean) * scale * widen(weight[i]) + widen(bias[i]));
    }
  } else if (weight != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i)
      y[i] = narrow<T>((widen(x[i]) - mean) * scale * widen(weight[i]));
  } else if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i)
      y[i] = narrow<T>((widen(x[i]) - mean) * scale + widen(bias[i]));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) y[i] = narrow<T>((widen(x[i]) - mean) * scale);
  }
}

// dx = inv_std * (g - mean(g) - normalized * mean(g * normalized)) with g = dy * weight. dx may be dy or x.
template <typename T, bool kWeighted>
REKINDLE_CPU_CLONES void row_backward(const T* dy, const T* x, const T* weight, std::int64_t columns,
                                      const Moments<Accumulator<T>>& moments, T* dx) {
  using A = Accumulator<T>;
  const A mean = moments.mean;
  const A inv_std = moments.inv_std;
  double total = 0;
  double along = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kLayerNormBlock) {
    const std::int64_t end = std::min(begin + kLayerNormBlock, columns);
    A block_total = 0;
    A block_along = 0;
#pragma omp simd reduction(+ : block_total, block_along)
    for (std::int64_t i = begin; i < end; ++i) {
      const A g = kWeighted ? widen(dy[i]) * widen(weight[i]) : widen(dy[i]);
      block_total += g;
      block_along += g * ((widen(x[i]) - mean) * inv_std);
    }
    total += block_total;
    along += block_along;
  }
  const A mean_total = static_cast<A>(total / static_cast<double>(columns));
  const A mean_along = static_cast<A>(along / static_cast<double>(columns));
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const A g = kWeighted ? widen(dy[i]) * widen(weight[i]) : widen(dy[i]);
    const A normalized = (widen(x[i]) - mean) * inv_std;
    dx[i] = narrow<T>(inv_std * (g - mean_total - normalized * mean_along));
  }
}

// Adds a row's share of dweight and dbias.
template <typename T>
REKINDLE_CPU_CLONES void add_row(const T* dy, const T* x, std::int64_t columns,
                                 const Moments<Accumulator<T>>& moments, Accumulator<T>* dweight,
                                 Accumulator<T>* dbias) {
  const auto mean = moments.mean;
  const auto inv_std = moments.inv_std;
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    dweight[i] += widen(dy[i]) * ((widen(x[i]) - mean) * inv_std);
    dbias[i] += widen(dy[i]);
  }
}

// Sums columns [begin, end) of `chunks` rows into `result`.
template <typename T>
REKINDLE_CPU_CLONES void sum_chunks(const Accumulator<T>* partial, std::int64_t chunks, std::int64_t columns,
                                    std::int64_t begin, std::int64_t end, T* result) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    Accumulator<T> sum = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + i];
    result[i] = narrow<T>(sum);
  }
}

template <typename T>
const T* optional_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

template <typename T>
void backward(const at::Tensor& dy, const at::Tensor& x, const Accumulator<T>* mean,
              const Accumulator<T>* inv_std, const T* weight, RowsAndColumns shape,
              const LayerNormGradients& gradients) {
  const std::int64_t columns = shape.columns;
  const std::int64_t chunks = layer_norm_chunks(shape.rows);
  const bool parameters = gradients.dweight.defined() || gradients.dbias.defined();
  auto* partial = parameters ? gradients.workspace.mutable_data_ptr<Accumulator<T>>() : nullptr;
  const T* dy_data = dy.const_data_ptr<T>();
  const T* x_data = x.const_data_ptr<T>();
  T* dx_data = gradients.dx.mutable_data_ptr<T>();
  at::parallel_for(0, chunks, grain_of(shape.rows / chunks * columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t chunk = begin; chunk < end; ++chunk) {
                       auto* dweight = partial + chunk * columns;
                       auto* dbias = partial + (chunks + chunk) * columns;
                       if (parameters) {
                         std::fill_n(dweight, columns, Accumulator<T>(0));
                         std::fill_n(dbias, columns, Accumulator<T>(0));
                       }
                       for (std::int64_t row = shape.rows * chunk / chunks;
                            row < shape.rows * (chunk + 1) / chunks; ++row) {
                         const Moments<Accumulator<T>> moments{mean[row], inv_std[row]};
                         const T* dy_row = dy_data + row * columns;
                         const T* x_row = x_data + row * columns;
                         T* dx_row = dx_data + row * columns;
                         if (parameters) add_row(dy_row, x_row, columns, moments, dweight, dbias);
                         if (weight != nullptr) {
                           row_backward<T, true>(dy_row, x_row, weight, columns, moments, dx_row);
                         } else {
                           row_backward<T, false>(dy_row, x_row, weight, columns, moments, dx_row);
                         }
                       }
                     }
                   });
  if (!parameters) return;
  T* dweight = gradients.dweight.defined() ? gradients.dweight.mutable_data_ptr<T>() : nullptr;
  T* dbias = gradients.dbias.defined() ? gradients.dbias.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    if (dweight != nullptr) sum_chunks(partial, chunks, columns, begin, end, dweight);
    if (dbias != nullptr) sum_chunks(partial + chunks * columns, chunks, columns, begin, end, dbias);
  });
}

}  // namespace

void layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                        at::Tensor& inv_std) {
  const auto [rows, columns] = rows_and_columns(x, options.axis);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, x.scalar_type(), "layer_norm_forward", [&, columns = columns] {
        const auto* x_data = x.const_data_ptr<scalar_t>();
        const auto* weight_data = optional_data<scalar_t>(weight);
        const auto* bias_data = optional_data<scalar_t>(bias);
        auto* y_data = y.mutable_data_ptr<scalar_t>();
        auto* mean_data = mean.mutable_data_ptr<Accumulator<scalar_t>>();
        auto* inv_std_data = inv_std.mutable_data_ptr<Accumulator<scalar_t>>();
        at::parallel_for(0, rows, grain_of(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto moments = row_moments(x_data + row * columns, columns, options.epsilon);
            normalize_row(x_data + row * columns, weight_data, bias_data, columns, moments,
                          y_data + row * columns);
            mean_data[row] = moments.mean;
            inv_std_data[row] = moments.inv_std;
          }
        });
      });
}

void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inv_std, const at::Tensor& weight, const LayerNormOptions& options,
                         const LayerNormGradients& gradients) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "layer_norm_backward", [&] {
    backward<scalar_t>(dy, x, mean.const_data_ptr<Accumulator<scalar_t>>(),
                       inv_std.const_data_ptr<Accumulator<scalar_t>>(), optional_data<scalar_t>(weight),
                       rows_and_columns(x, options.axis), gradients);
  });
}

}  // namespace rekindle::kernels::cpu
