// Runs the built `rekindle` program as a shell would.
#pragma once

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace rekindle::testing {

struct Outcome {
  int code = -1;
  std::string output;
};

// `redirect` and `environment` are shell text, such as "2>&1" and "HOME=/"; stdin is empty.
inline Outcome rekindle_command(const std::string& arguments,
                                const std::string& redirect = "2>/dev/null </dev/null",
                                const std::string& environment = "") {
  const std::string line = environment + " " REKINDLE_PROGRAM " " + arguments + " " + redirect;
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome;
  char buffer[4096];
  while (const std::size_t got = fread(buffer, 1, sizeof(buffer), pipe)) outcome.output.append(buffer, got);
  const int status = pclose(pipe);
  REQUIRE(WIFEXITED(status));
  outcome.code = WEXITSTATUS(status);
  return outcome;
}

inline nlohmann::json parsed(const Outcome& outcome) {
  REQUIRE(outcome.code == 0);
  const auto json = nlohmann::json::parse(outcome.output, nullptr, false);
  REQUIRE(json.is_object());
  return json;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The words, one a line, that a successful command prints.
inline std::vector<std::string> words(const std::string& arguments) {
  const Outcome outcome = rekindle_command(arguments);
  REQUIRE(outcome.code == 0);
  std::istringstream lines(outcome.output);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  return found;
}

}  // namespace rekindle::testing
