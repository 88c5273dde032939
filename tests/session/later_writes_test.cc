// Writes between a forward and its backward, to what the backward reads here or in eager.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "session/autograd/result_node.h"
#include "tests/session/session_text.h"

using rekindle::session::kTanh;
using rekindle::session::session_of;

TEST_CASE("an output modified in place before its backward is refused when the backward needs it",
          "[session][host]") {
  const auto session = session_of(kTanh, {true});
  const at::Tensor x = at::randn({5}, at::kDouble).requires_grad_();
  const at::Tensor y = session->forward(std::vector<at::Tensor>{x}, true).at(0);
  {
    const c10::AutoGradMode no_grad(false);
    y.mul_(2);
  }
  REQUIRE_THROWS_WITH(y.sum().backward(), Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("a write to what eager has saved is refused by the backwards that would read it",
          "[session][host]") {
  constexpr const char* text = R"(
graph g(%x: float64[5], %m: float64[5]) {
  opset 20, rekindle 1
  %a: float64[5] = Neg(%x)
  %b: float64[5] = Add(%x, %m)
  return %a, %b
}
)";
  constexpr std::size_t mask = 1, first_output = 2, first = 0, second = 1;
  rekindle::session::SessionOptions options;
  options.saved_tensors = {{mask, {{second}, {0}}}, {first_output, {{first, second}, {0}}}};
  const auto session = session_of(text, {true, false}, std::move(options));
  const std::vector<at::Tensor> in{at::randn({5}, at::kDouble).requires_grad_(), at::randn({5}, at::kDouble)};
  const auto differentiate = [&](std::size_t result, const at::Tensor& of, bool writes_output) {
    const auto outputs = session->forward(in, true);
    if (writes_output || of.defined()) {
      const c10::AutoGradMode no_grad(false);
      (writes_output ? outputs[first] : of).add_(1);
    }
    outputs[result].sum().backward();
  };
  CHECK_NOTHROW(differentiate(first, {}, false));
  CHECK_NOTHROW(differentiate(first, in[mask], false));
  CHECK_THROWS_WITH(differentiate(second, in[mask], false),
                    Catch::Contains("'m' of the wrapped module is at"));
  CHECK_THROWS_WITH(differentiate(second, {}, true), Catch::Contains("'result 0'"));
}

TEST_CASE("a write to a constant that eager has saved is refused by its backward", "[session][host]") {
  constexpr const char* text = R"(
graph g(%x: float64[5]) {
  opset 20, rekindle 1
  %a: float64[5] = Neg(%x)
  return %a
}
)";
  constexpr std::size_t second_constant = 3;  // after an input, an output and another constant
  rekindle::session::SessionOptions options;
  options.saved_tensors = {{second_constant, {{0}, {0}}}};
  const auto session = session_of(text, {true}, std::move(options));
  const std::vector<at::Tensor> in{at::randn({5}, at::kDouble).requires_grad_()};
  CHECK_THROWS_WITH(session->forward(in, true), Catch::Contains("was not given constant 1"));
  const at::Tensor first = at::ones({2}), second = at::ones({2});
  session->set_constants({first, second});
  const auto differentiate = [&](const at::Tensor& written) {
    const at::Tensor y = session->forward(in, true).at(0);
    written.add_(1);
    y.sum().backward();
  };
  CHECK_NOTHROW(differentiate(first));
  CHECK_THROWS_WITH(differentiate(second), Catch::Contains("'a plain tensor' of the wrapped module is at"));
  CHECK_NOTHROW(differentiate(first));  // it is as the forward found it
}

TEST_CASE("a write to what a forward has written is refused by the backwards that read it",
          "[session][host]") {
  constexpr const char* text = R"(
graph g(%x: float64[5]) {
  opset 20, rekindle 1
  %a: float64[5] = Neg(%x)
  %b: float64[5] = Add(%x, %x)
  return %a, %b
}
)";
  const auto session = session_of(text, {true});
  const auto reads = std::make_shared<const std::vector<rekindle::session::SavedTensor>>(
      std::vector<rekindle::session::SavedTensor>{{1, {{1}, {0}}}});
  const std::vector<at::Tensor> in{at::randn({5}, at::kDouble).requires_grad_()};
  const std::vector<at::Tensor> written{at::zeros({2}), at::zeros({2})};
  const auto differentiate = [&](std::size_t result, std::size_t write) {
    const auto outputs = session->forward(in, true);
    rekindle::session::refuse_later_writes(outputs, reads, written);
    written.at(write).add_(1);
    outputs[result].sum().backward();
  };
  CHECK_NOTHROW(differentiate(0, 1));
  CHECK_NOTHROW(differentiate(1, 0));
  CHECK_THROWS_WITH(differentiate(1, 1), Catch::Contains("'a tensor that the forward has written'"));
  CHECK_THROWS_WITH(rekindle::session::refuse_later_writes(session->forward(in, true), reads, {}),
                    Catch::Contains("has 0"));
}
