#include "tests/passes/pass_test.h"

using rekindle::testing::check_pass;

TEST_CASE("the second partial gradient of a weight is added to the first", "[passes]") {
  check_pass("fuse_accumulation", R"(graph g(%dy, %x, %dz, %i, %w) {
  opset 20, rekindle 1
  %a = rekindle::LinearWeightGradient(%dy, %x)
  %b = rekindle::EmbeddingGradient(%dz, %i, %w) {padding_idx = 3}
  %dw = Add(%a, %b) {accumulate = 1}
  return %dw
})",
             R"(graph g(%dy, %x, %dz, %i, %w) {
  opset 20, rekindle 1
  %a = rekindle::LinearWeightGradient(%dy, %x)
  %dw = rekindle::EmbeddingGradient(%dz, %i, %w, %a) {padding_idx = 3}
  return %dw
})");
}

TEST_CASE("a sum of the model's own, or of a value used elsewhere, stays", "[passes]") {
  constexpr const char* text = R"(graph g(%dy, %x, %b) {
  opset 20, rekindle 1
  %a = rekindle::LinearWeightGradient(%dy, %x)
  %own = Add(%a, %b)
  %c = rekindle::LinearWeightGradient(%x, %dy)
  %sum = Add(%c, %b) {accumulate = 1}
  return %own, %sum, %c
})";
  check_pass("fuse_accumulation", text, text);
}
