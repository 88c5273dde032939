// The three states of an op: a rule, no gradient, nothing known.
#include "src/autodiff/rule.h"

#include "src/graph/op_info.h"
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("an op has a rule, no gradient, or neither", "[autodiff]") {
  REQUIRE(rules().find("Add") != nullptr);
  CHECK(*rules().find("Add") != nullptr);
  REQUIRE(rules().find("rekindle::Linear") != nullptr);
  REQUIRE(rules().find("ArgMax") != nullptr);
  CHECK(*rules().find("ArgMax") == nullptr);
  CHECK(rules().find("TopK") == nullptr);
}

TEST_CASE("every forward op of our own has a rule or says that it has no gradient", "[autodiff]") {
  for (const graph::OpInfo& info : graph::all_ops()) {
    const std::string name(info.name);
    const bool backward_only = name.ends_with("Gradient") && name != "StopGradient";
    // split_batch_norms makes them of graphs that have their gradients.
    const bool made_later = name == "BatchStatistics" || name == "BatchNormalize";
    const bool helper = name == "SumToSizeOf" || name == "ReshapeLike" || name == "ExpandLike";
    // What owns graphs is not differentiated: a graph with one of these has no training plan.
    const bool owns_graphs = name == "If" || name == "Loop" || name == "Scan" || name == "SequenceMap";
    if (info.domain != graph::kRekindleDomain || backward_only || made_later || helper || owns_graphs)
      continue;
    INFO(name);
    CHECK(rules().find(graph::qualified_name(info.domain, info.name)) != nullptr);
  }
}

TEST_CASE("an unsupported case names the node and the reason", "[autodiff]") {
  const Error error =
      error_of(graph_text("%x: float32[2], %a: int64[1]", "%y: float32[1] = ReduceSum(%x, %a)"), "10");
  CHECK(error.code == ErrorCode::kUnsupported);
  CHECK(error.message == "the gradient of ReduceSum (%y) is not supported: its axes are not constant");
}

}  // namespace
}  // namespace rekindle::autodiff
