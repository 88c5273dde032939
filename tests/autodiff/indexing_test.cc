// Gradients of ops that read or write at indices, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("gathering adds into zeros", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[5, 3], %i: int64[2]", "%y: float32[2, 3] = Gather(%x, %i)"),
                    "10") ==
        "%d_x = rekindle::GatherGradient(%d_y, %i, %x) {axis = 0}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[5, 3], %i: int64[2, 3]",
                               "%y: float32[2, 3] = GatherElements(%x, %i) {axis = 0}"),
                    "10") ==
        "%1 = rekindle::ZerosLike(%x)\n"
        "%d_x = ScatterElements(%1, %i, %d_y) {axis = 0, reduction = \"add\"}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[5, 3], %i: int64[2, 1]", "%y: float32[2, 3] = GatherND(%x, %i)"),
                    "10") ==
        "%1 = rekindle::ZerosLike(%x)\n"
        "%d_x = ScatterND(%1, %i, %d_y) {reduction = \"add\"}\n"
        "return %d_x\n");
  CHECK_THAT(
      error_of(graph_text("%x: float32[2, 5], %i: int64[2, 1]", "%y = GatherND(%x, %i) {batch_dims = 1}"),
               "10")
          .message,
      Catch::Contains("batch_dims is not 0"));
}

TEST_CASE("an embedding keeps its padding row at zero", "[autodiff]") {
  CHECK(backward_of(graph_text("%w: float32[5, 3], %i: int64[2]",
                               "%y: float32[2, 3] = rekindle::Embedding(%w, %i) {padding_idx = 4}"),
                    "10") ==
        "%d_w = rekindle::EmbeddingGradient(%d_y, %i, %w) {padding_idx = 4}\n"
        "return %d_w\n");
}

TEST_CASE("scattering takes the cotangent of what was overwritten", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[5], %i: int64[2], %u: float32[2]",
                               "%y: float32[5] = ScatterElements(%x, %i, %u)"),
                    "101") ==
        "%1 = rekindle::ZerosLike(%u)\n"
        "%d_x = ScatterElements(%d_y, %i, %1) {axis = 0}\n"
        "%d_u = GatherElements(%d_y, %i) {axis = 0}\n"
        "return %d_x, %d_u\n");
  CHECK(backward_of(graph_text("%x: float32[5], %i: int64[2, 1], %u: float32[2]",
                               "%y: float32[5] = ScatterND(%x, %i, %u) {reduction = \"add\"}"),
                    "101") ==
        "%d_u = GatherND(%d_y, %i)\n"
        "return %d_y, %d_u\n");
  CHECK_THAT(error_of(graph_text("%x: float32[5], %i: int64[2], %u: float32[2]",
                                 "%y = ScatterElements(%x, %i, %u) {reduction = \"mul\"}"),
                      "101")
                 .message,
             Catch::Contains("reduction is \"mul\""));
}

}  // namespace
}  // namespace rekindle::autodiff
