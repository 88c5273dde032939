// Cross entropy's CUDA kernels, run on the machine, beside eager.
#include "kernels/backends.h"
#include "tests/cuda_emulation/machine.h"
#include "tests/kernels/cross_entropy_cases.h"

using rekindle::emulation::DeviceMemory;
using rekindle::emulation::Fault;
using rekindle::emulation::Order;
using rekindle::kernels::Reduction;
using namespace rekindle::testing;
namespace cuda = rekindle::kernels::cuda;

namespace {

// Memory of the device with the same numbers.
at::Tensor on_device(const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor).copy_(tensor) : tensor;
}

Outputs run(const Case& c, Order order = Order::kAscending) {
  const DeviceMemory memory;
  rekindle::emulation::set_order(order);
  Case there{on_device(c.scores), on_device(c.target), on_device(c.weight), on_device(c.dloss), c.options};
  Outputs o{empty_loss(c), at::empty(c.target.sizes(), c.scores.options().dtype(logsumexp_type(c))),
            at::empty_like(c.scores)};
  cuda::cross_entropy_forward(there.scores, there.target, there.weight, c.options, o.loss, o.logsumexp);
  cuda::cross_entropy_backward(there.dloss, there.scores, there.target, o.logsumexp, there.weight, c.options,
                               o.dscores);
  cuda::cross_entropy_backward(there.dloss, there.scores, there.target, o.logsumexp, there.weight, c.options,
                               there.scores);
  CHECK(bitwise_equal(there.scores, o.dscores));  // dscores may be the scores themselves
  return o;
}

}  // namespace

TEST_CASE("emulated cross entropy is as good as eager, whatever thread runs first", "[cuda_emulation]") {
  at::manual_seed(1);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const auto reduction = GENERATE(Reduction::kNone, Reduction::kMean, Reduction::kSum);
  const double smoothing = GENERATE(0.0, 0.1);
  // One class; fewer than a warp; a warp and a ragged end; several warps; columns; columns of several blocks;
  // nothing.
  const auto sizes = GENERATE(std::vector<std::int64_t>{7}, std::vector<std::int64_t>{1, 1},
                              std::vector<std::int64_t>{3, 37}, std::vector<std::int64_t>{2, 301},
                              std::vector<std::int64_t>{2, 10, 3}, std::vector<std::int64_t>{1, 3, 131},
                              std::vector<std::int64_t>{0, 5});
  const Case c = make_case(sizes, dtype, {reduction, -100, smoothing}, smoothing != 0);
  const Outputs exact = run_eager(c, at::kDouble), eager = run_eager(c, dtype);
  const Outputs ours = run(c);
  CAPTURE(dtype, sizes, reduction, smoothing);
  CHECK(as_good_as_eager(ours.loss, eager.loss, exact.loss));
  CHECK(as_good_as_eager(ours.dscores, eager.dscores, exact.dscores));
  const Outputs again = run(c, Order::kShuffled);
  CHECK(bitwise_equal(again.loss, ours.loss));
  CHECK(bitwise_equal(again.logsumexp, ours.logsumexp));
  CHECK(bitwise_equal(again.dscores, ours.dscores));
}

TEST_CASE("an emulated target that is no class ends the launch", "[cuda_emulation]") {
  Case c = make_case({4, 5}, at::kFloat, {}, false);
  c.target[2] = 5;
  CHECK_THROWS_WITH(run(c), Catch::Contains("assertion: t >= 0 && t < problem.classes"));
}
