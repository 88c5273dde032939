// Files of statistics as a subscriber writes them, with differences that a test plants.
#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/support.h"
#include "tests/support/temp_dir.h"

namespace rekindle::testing {

using Json = nlohmann::json;

inline const Json kHeader = {{"kind", "run"}, {"format", "rekindle.statistics"},
                             {"version", 1},  {"rank", 0},
                             {"world", 1},    {"model", "Net"}};

// 64 x 16 elements that are 1 in size, half of them negative.
inline Json tensor(int step, const std::string& phase, const std::string& name) {
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
inline std::vector<Json> run() {
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

inline constexpr std::size_t kStep = 9;  // lines of a step
inline constexpr std::size_t kParameter = 2, kOne = 4, kTwo = 5, kBackwardTwo = 6,
                             kGradientTwo = 7;  // of step 0

inline std::string write(const TempDir& dir, const std::string& name, const std::vector<Json>& lines,
                         const std::string& rest = "") {
  REQUIRE(std::system(("mkdir -p " + dir / name).c_str()) == 0);
  std::ofstream file(dir / (name + "/rank_" + std::to_string(lines.front()["rank"].get<int>()) + ".jsonl"));
  for (const Json& line : lines) file << line.dump() << '\n';
  file << rest;
  return dir / name;
}

inline std::vector<Json> changed(std::size_t line, const std::map<std::string, Json>& fields) {
  std::vector<Json> lines = run();
  for (const auto& [name, value] : fields) lines[line][name] = value;
  return lines;
}

struct Compared {
  int code = -1;
  Json json;
};

inline Compared compared(const std::vector<Json>& a, const std::vector<Json>& b,
                         const std::string& options = "") {
  const TempDir dir;
  const std::string one = write(dir, "a", a), other = write(dir, "b", b);
  const Outcome outcome = rekindle_command("diff " + one + " " + other + " --json " + options);
  return {outcome.code, Json::parse(outcome.output, nullptr, false)};
}

inline Compared with(std::size_t line, const std::map<std::string, Json>& fields,
                     const std::string& options = "") {
  return compared(run(), changed(line, fields), options);
}

inline std::string first(const Compared& found) {
  REQUIRE(found.code == 1);
  const Json& tensor = found.json["first"];
  std::string text = std::to_string(tensor["step"].get<int>()) + " " + tensor["phase"].get<std::string>() +
                     " " + tensor["name"].get<std::string>() + ":";
  for (const Json& one : tensor["statistics"]) {
    if (one["differs"]) text += " " + one["name"].get<std::string>();
  }
  return text;
}

}  // namespace rekindle::testing
