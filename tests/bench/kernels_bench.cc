// Times each CPU kernel against what eager does for the same result: kernels_bench [threads].
//
// Eager allocates its results and temporaries, ours write into memory that is already there, as in a training
// step of each. Both are the best of several runs, taken in turns, in milliseconds.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/batch_norm.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding_gradient.h"
#include "kernels/layer_norm.h"

namespace kernels = rekindle::kernels;

namespace {

template <typename F>
double milliseconds(const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <typename Eager, typename Ours>
void compare(const std::string& name, const Eager& eager, const Ours& ours) {
  double eager_ms = 1e30, our_ms = 1e30, spent = 0;
  for (int i = 0; i < 200 && (i < 5 || spent < 1000); ++i) {
    const double theirs = milliseconds(eager), mine = milliseconds(ours);
    eager_ms = std::min(eager_ms, theirs);
    our_ms = std::min(our_ms, mine);
    spent += theirs + mine;
  }
  std::printf("%-44s %9.3f %9.3f %7.2fx\n", name.c_str(), eager_ms, our_ms, eager_ms / our_ms);
}

std::string label(const char* name, at::IntArrayRef sizes, at::ScalarType dtype) {
  std::string text = std::string(name) + " " + at::toString(dtype) + " [";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

void bench_cross_entropy(std::int64_t rows, std::int64_t classes, at::ScalarType dtype) {
  const auto scores = at::randn({rows, classes}, dtype);
  const auto leaf = scores.clone().requires_grad_(true);
  const auto target = at::randint(classes, {rows}, at::kLong);
  auto loss = at::empty({}, dtype);
  auto logsumexp = at::empty({rows}, dtype == at::kDouble ? at::kDouble : at::kFloat);
  auto dscores = at::empty_like(scores);
  const auto dloss = at::ones({}, dtype);
  compare(
      label("cross_entropy forward", scores.sizes(), dtype), [&] { at::cross_entropy_loss(scores, target); },
      [&] { kernels::cross_entropy_forward(scores, target, {}, {}, loss, logsumexp); });
  compare(
      label("cross_entropy both", scores.sizes(), dtype),
      [&] {
        leaf.mutable_grad().reset();
        at::cross_entropy_loss(leaf, target).backward();
      },
      [&] {
        kernels::cross_entropy_forward(scores, target, {}, {}, loss, logsumexp);
        kernels::cross_entropy_backward(dloss, scores, target, logsumexp, {}, {}, dscores);
      });
}

void bench_dropout(std::int64_t size, at::ScalarType dtype) {
  const auto x = at::randn({size}, dtype);
  auto y = at::empty_like(x);
  auto mask = at::empty({size}, at::kBool);
  const auto noise = at::full_like(x, 1.1);
  compare(
      label("dropout forward", x.sizes(), dtype), [&] { at::dropout(x, 0.1, true); },
      [&] { kernels::dropout_forward(x, 0.1, y, mask); });
  compare(
      label("dropout backward", x.sizes(), dtype), [&] { at::mul(x, noise); },
      [&] { kernels::dropout_from_mask(x, mask, 0.1, y); });
}

void bench_embedding_gradient(std::int64_t vocabulary, std::int64_t columns, std::int64_t count) {
  const auto dy = at::randn({count, columns});
  const auto indices = at::randint(vocabulary, {count}, at::kLong);
  auto dweight = at::zeros({vocabulary, columns});
  compare(
      label("embedding_gradient (V, D, n)", {vocabulary, columns, count}, at::kFloat),
      [&] { at::embedding_dense_backward(dy, indices, vocabulary, -1, false); },
      [&] { kernels::embedding_gradient(dy, indices, {}, dweight); });
  compare(
      label("  added to another gradient", {vocabulary, columns, count}, at::kFloat),
      [&] { dweight.add_(at::embedding_dense_backward(dy, indices, vocabulary, -1, false)); },
      [&] {
        kernels::embedding_gradient(dy, indices, {-1, true}, dweight);
      });
}

void bench_layer_norm(std::int64_t rows, std::int64_t columns, at::ScalarType dtype) {
  const auto x = at::randn({rows, columns}, dtype);
  const auto dy = at::randn({rows, columns}, dtype);
  const auto weight = at::ones({columns}, dtype);
  const auto bias = at::zeros({columns}, dtype);
  const auto saved = at::native_layer_norm(x, {columns}, weight, bias, 1e-5);
  const auto statistics = dtype == at::kDouble ? at::kDouble : at::kFloat;
  auto y = at::empty_like(x), dx = at::empty_like(x);
  auto mean = at::empty({rows}, statistics), inv_std = at::empty({rows}, statistics);
  auto dweight = at::empty_like(weight), dbias = at::empty_like(weight);
  auto workspace = at::empty({kernels::layer_norm_workspace(rows, columns)}, statistics);
  compare(
      label("layer_norm forward", x.sizes(), dtype),
      [&] { at::native_layer_norm(x, {columns}, weight, bias, 1e-5); },
      [&] { kernels::layer_norm_forward(x, weight, bias, {}, y, mean, inv_std); });
  compare(
      label("layer_norm backward", x.sizes(), dtype),
      [&] {
        at::native_layer_norm_backward(dy, x, {columns}, std::get<1>(saved), std::get<2>(saved), weight, bias,
                                       {true, true, true});
      },
      [&] {
        kernels::layer_norm_backward(dy, x, mean, inv_std, weight, {}, {dx, dweight, dbias, workspace});
      });
}

// 4 samples; with a relu after it, or none.
void bench_batch_norm(std::int64_t channels, std::int64_t size, bool relu) {
  const at::Tensor x = at::randn({4, channels, size, size});
  const auto of_channels = [&] { return at::rand({channels}); };
  const at::Tensor weight = of_channels(), bias = of_channels() - 0.5, old_mean = of_channels();
  at::Tensor theirs_mean = of_channels(), theirs_var = of_channels(), running_mean = of_channels(),
             running_var = of_channels(), mean = of_channels(), inv_std = of_channels(),
             factor = of_channels(), offset = of_channels(), y = at::empty_like(x);
  const std::string name = relu ? "batch_norm, relu " : "batch_norm ";
  at::Tensor eager_y, eager_mean, eager_inv_std;
  compare(
      label((name + "forward").c_str(), x.sizes(), at::kFloat),
      [&] {
        std::tie(eager_y, eager_mean, eager_inv_std) =
            at::native_batch_norm(x, weight, bias, theirs_mean, theirs_var, true, 0.1, 1e-5);
        if (relu) eager_y.relu_();
      },
      [&] {
        kernels::batch_statistics(x, {old_mean, old_mean, weight, bias}, {},
                                  {mean, inv_std, running_mean, running_var, factor, offset});
        kernels::batch_normalize(x, {mean, factor, offset}, relu, y);
      });
}

// The batch norms of ResNet-50: each once.
void bench_batch_norms() {
  bench_batch_norm(64, 112, true);
  for (const auto& [channels, size] : {std::pair{64, 56}, {128, 28}, {256, 14}, {512, 7}}) {
    bench_batch_norm(channels, size, true);
    bench_batch_norm(4 * channels, size, false);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) at::set_num_threads(std::atoi(argv[1]));
  std::printf("%d threads%35s %9s %9s %8s\n", at::get_num_threads(), "", "eager ms", "ours ms", "ratio");
  bench_batch_norms();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    bench_cross_entropy(256, 50257, dtype);
    bench_cross_entropy(4096, 256, dtype);
    bench_dropout(1 << 20, dtype);
    bench_layer_norm(256, 768, dtype);
    bench_layer_norm(4096, 768, dtype);
  }
  bench_embedding_gradient(50257, 768, 256);
  bench_embedding_gradient(256, 128, 4096);
  return 0;
}
