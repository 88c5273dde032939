#include "tests/passes/pass_test.h"

using rekindle::testing::check_pass;

TEST_CASE("nodes that no output needs go, with what only they needed", "[passes]") {
  check_pass("eliminate_dead_nodes", R"(graph g(%x, %unused) {
  opset 20
  %a = Relu(%x)
  %b = Neg(%a)
  %c = Add(%b, %b)
  %y = Exp(%a)
  return %y
})",
             R"(graph g(%x, %unused) {
  opset 20
  %a = Relu(%x)
  %y = Exp(%a)
  return %y
})");
}

TEST_CASE("a node stays while one of its outputs is needed, and a random node always does", "[passes]") {
  check_pass("eliminate_dead_nodes", R"(graph g(%x) {
  opset 20
  %on = Constant() {value = bool[]{true}}
  %off = Constant() {value = bool[]{false}}
  %n, %mean, %scale = LayerNormalization(%x, %x)
  %r = Dropout(%x, _, %on)
  %d = Dropout(%x, _, %off)
  return %scale
})",
             R"(graph g(%x) {
  opset 20
  %on = Constant() {value = bool[]{true}}
  %n, %mean, %scale = LayerNormalization(%x, %x)
  %r = Dropout(%x, _, %on)
  return %scale
})");
}
