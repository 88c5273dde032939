// `rekindle diff`: which tensor of two runs it names, and what rounding explains.
#include <cmath>

#include "tests/cli/diff_support.h"

using namespace rekindle::testing;

TEST_CASE("runs that are equal have no difference", "[cli]") {
  const Compared found = compared(run(), run());
  REQUIRE(found.code == 0);
  REQUIRE(found.json["different"] == false);
  REQUIRE(found.json["compared"] == 16);
  REQUIRE(found.json["worst"] == 0.0);
  REQUIRE(found.json["first"].is_null());
}

TEST_CASE("the first difference is the first in the order of execution", "[cli]") {
  const Json other = {{"norm", 33.0}, {"std", 1.03}};
  std::vector<Json> lines = run();
  for (const std::size_t line : {kGradientTwo, kTwo, kStep + kOne}) lines[line].update(other);
  REQUIRE(first(compared(run(), lines)) == "0 forward two: norm std");
  lines[kTwo] = run()[kTwo];
  REQUIRE(first(compared(run(), lines)) == "0 gradient two.weight: norm std");
  lines[kGradientTwo] = run()[kGradientTwo];
  REQUIRE(first(compared(run(), lines)) == "1 forward one: norm std");
}

TEST_CASE("each statistic is compared", "[cli]") {
  REQUIRE(first(with(kOne, {{"norm", 32.01}})) == "0 forward one: norm");
  REQUIRE(first(with(kOne, {{"mean", 1e-4}})) == "0 forward one: mean");
  REQUIRE(first(with(kOne, {{"std", 1.0001}})) == "0 forward one: std");
  REQUIRE(first(with(kOne, {{"min", -2.001}})) == "0 forward one: min");
  REQUIRE(first(with(kOne, {{"max", 2.001}})) == "0 forward one: max");
  REQUIRE(first(with(kOne, {{"nans", 1}})) == "0 forward one: nans");
  REQUIRE(first(with(kOne, {{"infs", 1}})) == "0 forward one: infs");
  REQUIRE(first(with(kOne, {{"zeros", 0.5}})) == "0 forward one: zeros");
  REQUIRE(first(with(kOne, {{"max", nullptr}})) == "0 forward one: max");
  REQUIRE(first(with(kOne, {{"norm", nullptr}})) == "0 forward one: norm");
}

TEST_CASE("rounding is no difference, and is as large as the dtype says", "[cli]") {
  const std::map<std::string, Json> small = {{"norm", 32.000005}, {"mean", 1e-7}, {"max", 2.000001}};
  REQUIRE(with(kOne, small).code == 0);
  REQUIRE(with(kOne, {{"norm", 32.01}}).code == 1);
  REQUIRE(with(kOne, {{"norm", 32.01}}, "--tolerance 10000").code == 0);
  for (const auto& [dtype, code] :
       std::map<std::string, int>{{"bfloat16", 0}, {"float16", 0}, {"float64", 1}}) {
    std::vector<Json> a = changed(kOne, {{"dtype", dtype}}),
                      b = changed(kOne, {{"dtype", dtype}, {"norm", 32.003}});
    REQUIRE(compared(a, b).code == code);
  }
}

TEST_CASE("a tensor may differ as far as what feeds it lets it", "[cli]") {
  std::vector<Json> lines = run();
  lines[kStep + kParameter]["norm"] = 32.000005;
  lines[kStep + kOne]["norm"] = 32.00002;
  lines[kStep + kTwo]["norm"] = 32.00008;
  REQUIRE(compared(run(), lines).code == 0);
  lines[kStep + kOne]["norm"] = 32.0;
  lines[kStep + kParameter]["norm"] = 32.0;
  REQUIRE(first(compared(run(), lines)) == "1 forward two: norm");
}

TEST_CASE("zeros that the other run has as tiny values are rounding", "[cli]") {
  const Json tiny = {{-40, 256, 256}, {-1, 100, 100}, {0, 156, 156}};
  REQUIRE(compared(changed(kOne, {{"zeros", 0.5}, {"histogram", {{-1, 100, 100}, {0, 156, 156}}}}),
                   changed(kOne, {{"histogram", tiny}}))
              .code == 0);
}

TEST_CASE("integers differ when they differ", "[cli]") {
  const std::map<std::string, Json> integers = {{"dtype", "int64"}};
  std::map<std::string, Json> others = integers;
  REQUIRE(compared(changed(kOne, integers), changed(kOne, others)).code == 0);
  others["mean"] = 0.01;
  REQUIRE(first(compared(changed(kOne, integers), changed(kOne, others))) == "0 forward one: mean");
}

TEST_CASE("a bias whose gradient cancels may move by whole steps of the optimizer", "[cli]") {
  const auto bias = [](double gradient, double sign) {
    std::vector<Json> lines = run();
    const auto set = [&](std::size_t line, double size, double mean) {
      lines[line].update({{"name", "one.bias"},
                          {"shape", {16}},
                          {"count", 16},
                          {"norm", 4 * size},
                          {"std", size},
                          {"min", -size},
                          {"max", size},
                          {"mean", mean}});
      const int power = size == 0 ? 0 : std::ilogb(size);
      lines[line]["histogram"] = size == 0 ? Json::array() : Json{{power, 8, 8}};
    };
    set(kParameter, 0, 0);
    lines[kParameter]["zeros"] = 1.0;
    set(kStep, gradient, sign * gradient / 4);          // the last of step 0: the gradient
    set(kStep + kParameter, 1e-3, sign * 0.25 * 1e-3);  // a step of Adam, by the gradient's sign
    return lines;
  };
  REQUIRE(compared(bias(1e-9, 1), bias(1e-9, -1)).code == 0);
  REQUIRE(first(compared(bias(1.0, 1), bias(1.0, -1))) == "0 gradient one.bias: mean");
}

TEST_CASE("what feeds the first difference is told, with its values", "[cli]") {
  const Compared found = with(kTwo, {{"norm", 33.0}});
  const Json& fed = found.json["first"]["fed_by"];
  REQUIRE(fed.size() == 2);
  REQUIRE(fed[0]["name"] == "two.weight");
  REQUIRE(fed[0]["phase"] == "parameter");
  REQUIRE(fed[1]["name"] == "one");
  REQUIRE(fed[1]["norm"] == Json({32.0, 32.0}));
  REQUIRE(found.json["first"]["module"] == "Linear");
  REQUIRE(found.json["first"]["dtype"] == Json({"float32", "float32"}));
}

TEST_CASE("the report for people names tensor, values and feeders", "[cli]") {
  const TempDir dir;
  const std::string one = write(dir, "a", run()), other = write(dir, "b", changed(kTwo, {{"norm", 33.0}}));
  const Outcome found = rekindle_command("diff " + one + " " + other);
  REQUIRE(found.code == 1);
  REQUIRE(contains(found.output, "first difference: step 0, forward, two (Linear)\n"));
  REQUIRE(
      contains(found.output, "  float32 [64,16] in A, float32 [64,16] in B; 3 tensors before it agree\n"));
  REQUIRE(contains(found.output, "  norm       32  33  1"));
  REQUIRE(contains(found.output, "differs\n"));
  REQUIRE(contains(found.output, "fed by, which agree:\n"));
  REQUIRE(contains(found.output, "  step 0, forward, one (Linear)"));
  const Outcome same = rekindle_command("diff " + one + " " + one);
  REQUIRE(same.code == 0);
  REQUIRE(contains(same.output, "no difference that rounding does not explain: 16 tensors"));
}

TEST_CASE("other sizes are a difference", "[cli]") {
  const Compared found = with(kTwo, {{"shape", {32, 32}}});
  REQUIRE(first(found) == "0 forward two:");
  REQUIRE(found.json["first"]["shape"] == Json({{64, 16}, {32, 32}}));
}

TEST_CASE("what is NaN in both runs, or empty, is no difference", "[cli]") {
  std::vector<Json> lines = run();
  for (Json& line : lines) {
    if (line["kind"] != "tensor") continue;
    const bool is_empty = line["name"] == "two";
    line.update({{"count", is_empty ? 0 : 1024}, {"nans", is_empty ? 0 : 1024}, {"norm", 0.0}});
    line.update({{"histogram", Json::array()}, {"dtype", is_empty ? "int64" : "float32"}});
    for (const char* name : {"min", "max", "mean", "std"}) line[name] = nullptr;
  }
  REQUIRE(compared(lines, lines).code == 0);
  REQUIRE(compared(lines, run()).code == 1);
  REQUIRE(compared(run(), lines).code == 1);
}
