// What is registered, against golden lists: a linker that drops a registrar, or an op that vanishes, shows
// here. REKINDLE_ACCEPT=1 rewrites the lists; the test then fails, so that it cannot pass by accident.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "session/run/interpreter.h"
#include "session/session.h"
#include "src/autodiff/rule.h"
#include "src/graph/op_info.h"

namespace {

void check_golden(const std::string& name, const std::vector<std::string>& actual) {
  const std::string path = std::string(REKINDLE_TEST_DATA) + "/registry/" + name + ".txt";
  if (std::getenv("REKINDLE_ACCEPT") != nullptr) {
    std::ofstream file(path);
    for (const std::string& line : actual) file << line << "\n";
    FAIL("rewrote " << path);
  }
  std::vector<std::string> expected;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) expected.push_back(line);
  CHECK(actual == expected);
}

}  // namespace

TEST_CASE("the session's ops are the golden list", "[session][host]") {
  check_golden("session_ops", rekindle::session::supported_ops());
}

TEST_CASE("the ops that are only interpreted are the golden list", "[session][host]") {
  check_golden("interpreted_ops", rekindle::session::interpreted_ops());
}

TEST_CASE("the gradient rules are the golden list", "[session][host]") {
  check_golden("gradient_rules", rekindle::autodiff::rules().names());
}

TEST_CASE("every op of the session is known to the graph", "[session][host]") {
  for (const std::string& name : rekindle::session::supported_ops()) {
    const std::size_t split = name.find("::");
    const bool own = split != std::string::npos;
    CAPTURE(name);
    CHECK(rekindle::graph::find_op(own ? name.substr(0, split) : "", own ? name.substr(split + 2) : name) !=
          nullptr);
  }
}
