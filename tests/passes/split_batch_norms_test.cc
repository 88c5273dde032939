#include "tests/passes/pass_test.h"

namespace rekindle::testing {
namespace {

const std::string kHead =
    "graph g(%i: float32[4, 3, 8, 8], %s: float32[3], %b: float32[3], %m: float32[3], %v: float32[3], %dz: "
    "float32[4, 3, 8, 8]) {\n  opset 20, rekindle 1, torch 1\n"
    "  %x: float32[4, 3, 8, 8] = Neg(%i)\n";

std::string norm(const std::string& inputs, const std::string& training = "1") {
  return "  %y: float32[4, 3, 8, 8], %a: float32[3], %r: float32[3], %n: float32[3], %o: float32[3] = "
         "torch::aten._native_batch_norm_legit_functional.default(" +
         inputs + ") {training = " + training +
         ", momentum = float64[]{0.1}, eps = float64[]{1e-05}, _results = 5}\n";
}

std::string text(const std::string& body, const std::string& outputs) {
  return kHead + body + "  return " + outputs + "\n}";
}

std::size_t count(std::string_view before, const std::string& op) {
  const auto graph = graph_from(before);
  run_pass(*graph, "split_batch_norms");
  run_pass(*graph, "eliminate_dead_nodes");
  std::size_t found = 0;
  for (const auto& node : graph->nodes()) found += node->op_type() == op ? 1 : 0;
  return found;
}

const std::string kNorm = norm("%x, %s, %b, %m, %v");
const std::string kGradient =
    "  %dx, %ds, %db = rekindle::BatchNormGradient(%dy, %x, %a, %r, %s) "
    "{eps = float64[]{1e-05}, wanted = [1, 1, 1]}\n";

}  // namespace

TEST_CASE("a batch norm and its relu become statistics and a line", "[passes]") {
  const auto relu = GENERATE("Relu(%y)", "torch::aten.relu.default(%y) {_results = 1}");
  check_pass("split_batch_norms",
             text(kNorm + "  %z: float32[4, 3, 8, 8] = " + relu + "\n  %e: float32[4, 3, 8, 8] = Exp(%z)\n" +
                      "  %dy: float32[4, 3, 8, 8] = rekindle::ReluGradient(%dz, %z)\n" + kGradient,
                  "%e, %n, %o, %dx, %ds, %db"),
             text("  %v18: float32[3], %v19: float32[3], %n: float32[3], %o: float32[3], %v22: float32[3], "
                  "%v23: float32[3] = rekindle::BatchStatistics(%x, %m, %v, %s, %b) "
                  "{eps = float64[]{1e-05}, momentum = float64[]{0.1}}\n"
                  "  %v24: float32[4, 3, 8, 8] = rekindle::BatchNormalize(%x, %v18, %v22, %v23) {relu = 1}\n"
                  "  %e: float32[4, 3, 8, 8] = Exp(%v24)\n"
                  "  %dy: float32[4, 3, 8, 8] = rekindle::ReluGradient(%dz, %v24)\n"
                  "  %dx, %ds, %db = rekindle::BatchNormGradient(%dy, %x, %v18, %v19, %s) "
                  "{eps = float64[]{1e-05}, wanted = [1, 1, 1]}\n",
                  "%e, %n, %o, %dx, %ds, %db"));
}

TEST_CASE("a batch norm that others read keeps its relu apart", "[passes]") {
  const std::string body = kNorm + "  %z = Relu(%y)\n  %e = Exp(%z)\n";
  const std::string twice = text(body + "  %f = Exp(%y)\n", "%e, %f"), given = text(body, "%e, %y"),
                    alone = text(body, "%e");
  for (const std::string& before : {twice, given}) {
    CHECK(count(before, "BatchNormalize") == 1);
    CHECK(count(before, "Relu") == 1);
  }
  CHECK(count(alone, "Relu") == 0);
}

TEST_CASE("a batch norm without scale and bias is split", "[passes]") {
  const std::string before = text(norm("%x, _, _, %m, %v") + "  %z = Relu(%y)\n", "%z, %n, %o");
  CHECK(count(before, "BatchStatistics") == 1);
  CHECK(count(before, "Relu") == 0);
}

TEST_CASE("a batch norm stays in evaluation, where others read its statistics, and of other types",
          "[passes]") {
  check_unchanged("split_batch_norms", text(norm("%x, %s, %b, %m, %v", "0"), "%y"));
  check_unchanged("split_batch_norms", text(kNorm, "%y, %a"));
  check_unchanged("split_batch_norms", text(kNorm + "  %c = Exp(%r)\n", "%y, %c"));
  for (const auto& [from, to] : {std::pair{"float32[3], %m", "float64[3], %m"},
                                 {"%x: float32[4, 3, 8, 8]", "%x: bfloat16[4, 3, 8, 8]"},
                                 {"%x: float32[4, 3, 8, 8]", "%x: float64[4, 3, 8, 8]"},
                                 {"%x: float32[4, 3, 8, 8]", "%x"},
                                 {"%x: float32[4, 3, 8, 8]", "%x: float32"}}) {
    std::string other = text(kNorm, "%y");
    other.replace(other.find(from), std::string(from).size(), to);
    check_unchanged("split_batch_norms", other);
  }
}

}  // namespace rekindle::testing
