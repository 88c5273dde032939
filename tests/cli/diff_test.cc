// `rekindle diff`: runs with planted differences, and what rounding explains.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::Outcome;
using rekindle::testing::parsed;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;
using Json = nlohmann::json;

namespace {

const Json kHeader = {{"kind", "run"}, {"format", "rekindle.statistics"},
                      {"version", 1},  {"rank", 0},
                      {"world", 1},    {"model", "Net"}};

// 64 x 16 elements that are 1 in size, half of them negative.
Json tensor(int step, const std::string& phase, const std::string& name) {
  return {{"kind", "tensor"},
          {"step", step},
          {"phase", phase},
          {"name", name},
          {"output", phase == "forward" || phase == "backward" ? Json(0) : Json()},
          {"call", 0},
          {"module", "Linear"},
          {"dtype", "float32"},
          {"shape", {64, 16}},
          {"count", 1024},
          {"nans", 0},
          {"infs", 0},
          {"zeros", 0.0},
          {"min", -2.0},
          {"max", 2.0},
          {"mean", 0.0},
          {"std", 1.0},
          {"norm", 32.0},
          {"histogram", {{-1, 300, 300}, {0, 212, 212}}}};
}

// Two steps of a module of two parts.
std::vector<Json> run() {
  std::vector<Json> lines = {kHeader};
  for (int step : {0, 1}) {
    lines.push_back({{"kind", "step"}, {"step", step}, {"training", true}, {"gradients", true}});
    for (const std::string name : {"one.weight", "two.weight"})
      lines.push_back(tensor(step, "parameter", name));
    for (const std::string name : {"one", "two"}) lines.push_back(tensor(step, "forward", name));
    for (const std::string name : {"two", "one"}) {
      lines.push_back(tensor(step, "backward", name));
      lines.push_back(tensor(step, "gradient", name + ".weight"));
    }
  }
  return lines;
}

constexpr std::size_t kStep = 9;  // lines of a step
constexpr std::size_t kParameter = 2, kOne = 4, kTwo = 5, kBackwardTwo = 6, kGradientTwo = 7;  // of step 0

std::string write(const TempDir& dir, const std::string& name, const std::vector<Json>& lines,
                  const std::string& rest = "") {
  REQUIRE(std::system(("mkdir -p " + dir / name).c_str()) == 0);
  std::ofstream file(dir / (name + "/rank_" + std::to_string(lines.front()["rank"].get<int>()) + ".jsonl"));
  for (const Json& line : lines) file << line.dump() << '\n';
  file << rest;
  return dir / name;
}

std::vector<Json> changed(std::size_t line, const std::map<std::string, Json>& fields) {
  std::vector<Json> lines = run();
  for (const auto& [name, value] : fields) lines[line][name] = value;
  return lines;
}

struct Compared {
  int code = -1;
  Json json;
};

Compared compared(const std::vector<Json>& a, const std::vector<Json>& b, const std::string& options = "") {
  const TempDir dir;
  const std::string one = write(dir, "a", a), other = write(dir, "b", b);
  const Outcome outcome = rekindle_command("diff " + one + " " + other + " --json " + options);
  return {outcome.code, Json::parse(outcome.output, nullptr, false)};
}

Compared with(std::size_t line, const std::map<std::string, Json>& fields, const std::string& options = "") {
  return compared(run(), changed(line, fields), options);
}

std::string first(const Compared& found) {
  REQUIRE(found.code == 1);
  const Json& tensor = found.json["first"];
  std::string text = std::to_string(tensor["step"].get<int>()) + " " + tensor["phase"].get<std::string>() +
                     " " + tensor["name"].get<std::string>() + ":";
  for (const Json& one : tensor["statistics"]) {
    if (one["differs"]) text += " " + one["name"].get<std::string>();
  }
  return text;
}

}  // namespace

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

TEST_CASE("tensors and steps of one run only are told, and no difference", "[cli]") {
  std::vector<Json> lines = run();
  lines.resize(1 + kStep);  // step 0
  Json extra = tensor(0, "forward", "extra");
  lines.insert(lines.begin() + kTwo, extra);
  lines[1]["training"] = false;
  const Compared found = compared(run(), lines);
  REQUIRE(found.code == 0);
  REQUIRE(found.json["only_a"] == 0);
  REQUIRE(found.json["only_b"] == 1);
  const std::string notes = found.json["notes"].dump();
  REQUIRE(contains(notes, "A has steps 0 to 1, B has steps 0 to 0; those of both are compared"));
  REQUIRE(contains(notes, "step 0 is training in A and evaluation in B"));
  REQUIRE(contains(notes, "1 tensors are in B only: step 0, forward, extra (Linear)"));
}

TEST_CASE("gradients that come after the next step has begun belong to their step", "[cli]") {
  std::vector<Json> lines = run();
  std::rotate(lines.begin() + kBackwardTwo, lines.begin() + 1 + kStep, lines.begin() + 1 + kStep + 5);
  REQUIRE(compared(run(), lines).code == 0);
  lines.back()["norm"] = 33.0;
  REQUIRE(first(compared(run(), lines)) == "1 gradient one.weight: norm");
}

TEST_CASE("the earliest difference of all ranks is shown", "[cli]") {
  const TempDir dir;
  for (const int rank : {0, 1}) {
    std::vector<Json> a = run(),
                      b = rank == 0 ? changed(kTwo, {{"max", 3.0}}) : changed(kOne, {{"max", 3.0}});
    a[0]["rank"] = b[0]["rank"] = rank;
    a[0]["world"] = b[0]["world"] = 2;
    write(dir, "a", a);
    write(dir, "b", b);
  }
  const Outcome found = rekindle_command("diff " + dir / "a" + " " + dir / "b" + " --json");
  REQUIRE(found.code == 1);
  const Json first = Json::parse(found.output)["first"];
  REQUIRE(first["rank"] == 1);
  REQUIRE(first["name"] == "one");
  const Outcome text = rekindle_command("diff " + dir / "a" + " " + dir / "b");
  REQUIRE(contains(text.output, "first difference: rank 1, step 0, forward, one (Linear)"));
  const Outcome ranks = rekindle_command("diff " + dir / "b/rank_0.jsonl" + " " + dir / "b/rank_1.jsonl");
  REQUIRE(contains(ranks.output, "first difference: step 0, forward, one (Linear)"));
  const Outcome other =
      rekindle_command("diff " + dir / "a" + " " + dir / "b/rank_0.jsonl", "2>&1 </dev/null");
  REQUIRE(other.code == 2);
  REQUIRE(contains(other.output, "has 2 ranks and"));
  REQUIRE(contains(other.output, "rekindle diff merge"));
}

TEST_CASE("a file that ends in the midst of a line is read up to it", "[cli]") {
  const TempDir dir;
  const std::string one = write(dir, "a", run()), cut = write(dir, "b", run(), R"({"kind":"tensor","st)");
  const Json found = parsed(rekindle_command("diff " + one + " " + cut + " --json"));
  REQUIRE(found["compared"] == 16);
  REQUIRE(contains(found["notes"].dump(), "ends early"));
}

TEST_CASE("what is no run is one clear message", "[cli]") {
  const TempDir dir;
  const std::string good = write(dir, "good", run());
  const auto refused = [&](const std::string& name, const std::vector<Json>& lines, const std::string& rest,
                           const std::string& message) {
    const std::string bad = write(dir, name, lines, rest);
    const Outcome found = rekindle_command("diff " + good + " " + bad, "2>&1 </dev/null");
    CAPTURE(name, found.output);
    REQUIRE(found.code == 2);
    REQUIRE(contains(found.output, message));
    REQUIRE(std::count(found.output.begin(), found.output.end(), '\n') == 1);
  };
  Json newer = kHeader, wrong = tensor(0, "forward", "one"), odd = wrong, many = wrong;
  newer["version"] = 2;
  wrong.erase("norm");
  odd["phase"] = "sideways";
  many["nans"] = 5000;
  refused("newer", {newer}, "", "has version 2 of the format, this program reads 1");
  refused("wrong", {kHeader, wrong}, "", "rank_0.jsonl:2 is no record");
  refused("odd", {kHeader, odd}, "", "there is no phase sideways");
  refused("many", {kHeader, many}, "", "more NaNs than elements");
  refused("text", {kHeader}, "hello\n{}\n", "rank_0.jsonl:2 is no record");
  refused("others", {kHeader, tensor(0, "forward", "other")}, "", "no tensor of one name in one step");
  Json foreign = {{"rank", 0}, {"kind", "run"}, {"format", "something"}};
  refused("foreign", {foreign}, "", "is no file of statistics");
  REQUIRE(rekindle_command("diff " + good + " " + dir / "nothing").code == 2);
  REQUIRE(rekindle_command("diff " + good + " " + dir.path()).code == 2);
  REQUIRE(rekindle_command("diff " + good).code == 64);
  REQUIRE(rekindle_command("diff " + good + " " + good + " --tolerance -1").code == 64);
}

TEST_CASE("ranks are merged into the statistics of all elements", "[cli]") {
  const TempDir dir;
  std::vector<Json> other = run();
  other[0]["rank"] = 1;
  other[kOne].update({{"shape", {64, 16}},
                      {"mean", 1.0},
                      {"min", -1.0},
                      {"max", 5.0},
                      {"norm", 46.0},
                      {"zeros", 0.25},
                      {"nans", 2},
                      {"histogram", {{-2, 7, 0}, {0, 500, 1}}}});
  write(dir, "ranks", run());
  write(dir, "ranks", other);
  const Json found =
      parsed(rekindle_command("diff merge " + dir / "ranks" + " -o " + dir / "merged" + " --json"));
  REQUIRE(found["ranks"] == 2);
  REQUIRE(found["tensors"] == 16);
  std::ifstream file(dir / "merged/rank_0.jsonl");
  std::map<std::string, Json> records;
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    if (record.value("step", -1) == 0 && record["kind"] == "tensor") {
      records[record["phase"].get<std::string>() + " " + record["name"].get<std::string>()] = record;
    }
  }
  const Json one = records.at("forward one");
  REQUIRE(one["count"] == 2048);
  REQUIRE(one["shape"] == Json({128, 16}));
  REQUIRE(one["nans"] == 2);
  REQUIRE(one["zeros"] == 0.125);
  REQUIRE(one["min"] == -2.0);
  REQUIRE(one["max"] == 5.0);
  REQUIRE(one["mean"].get<double>() == Approx(1022.0 / 2046));
  REQUIRE(one["std"].get<double>() == Approx(std::sqrt(1 + 1024.0 * 1022.0 / (2046.0 * 2046.0))));
  REQUIRE(one["norm"].get<double>() == Approx(std::hypot(32.0, 46.0)));
  REQUIRE(one["histogram"] == Json({{-2, 7, 0}, {-1, 300, 300}, {0, 712, 213}}));
  REQUIRE(records.at("parameter one.weight") == tensor(0, "parameter", "one.weight"));
  REQUIRE(rekindle_command("diff merge " + dir / "ranks" + " -o " + dir / "merged").code == 1);
  REQUIRE(rekindle_command("diff merge " + dir / "ranks").code == 64);
  write(dir, "same", run());
  REQUIRE(parsed(rekindle_command("diff " + dir / "merged" + " " + dir / "merged --json"))["compared"] == 16);
}
