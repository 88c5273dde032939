// `rekindle profile merge`: traces of ranks become one, aligned by their clocks.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/support.h"
#include "tests/support/temp_dir.h"

namespace rekindle::testing {
namespace {

using Json = nlohmann::json;

// One step, whose forward begins `at` microseconds after the trace and takes 2 ms.
Json trace(int rank, std::int64_t began_ns, double at = 5) {
  const Json forward = {{"ph", "X"},    {"name", "rekindle.profile: forward"},
                        {"cat", "cpu"}, {"pid", rank},
                        {"tid", "one"}, {"ts", at},
                        {"dur", 2000.0}};
  const Json name = {{"ph", "M"}, {"name", "process_name"}, {"pid", rank}};
  return {{"traceEvents", {name, forward}}, {"rekindle", {{"rank", rank}, {"began_ns", began_ns}}}};
}

struct Traces {
  TempDir dir;
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(dir / name) << text;
    return dir / name;
  }
  Outcome merged(const std::string& files, const std::string& output = "all.json") const {
    return rekindle_command("profile merge " + files + " -o " + dir / output, "2>&1 </dev/null");
  }
};

}  // namespace

TEST_CASE("traces of ranks become one, whose times count from the first of them", "[cli]") {
  const Traces traces;
  const std::string a = traces.file("a", trace(1, 4'000'000).dump()),
                    b = traces.file("b", trace(0, 1'000'000).dump());
  const Outcome done = traces.merged(a + " " + b);
  REQUIRE(done.code == 0);
  CHECK(contains(done.output, "1     1      2.000       -"));
  std::ifstream in(traces.dir / "all.json");
  const Json events = Json::parse(in)["traceEvents"];
  REQUIRE(events.size() == 4);
  CHECK(events[1]["ts"] == 5.0);
  CHECK(events[3]["ts"] == 3005.0);
  CHECK(events[3]["pid"] == 1);
}

TEST_CASE("what is no trace of one rank each is refused by name, and nothing is written", "[cli]") {
  const Traces traces;
  Json odd = trace(1, 0);
  odd["traceEvents"][1]["ts"] = "soon";
  const auto [text, said] = GENERATE_COPY(table<std::string, std::string>(
      {{"{", "is no JSON"},
       {"{}", "has no rank"},
       {R"({"traceEvents": [], "rekindle": {"rank": "0", "began_ns": 1}})", "has no rank"},
       {odd.dump(), "has events that are none"},
       {trace(0, 7).dump(), "are both of rank 0"}}));
  const std::string good = traces.file("good", trace(0, 0).dump()), other = traces.file("other", text);
  const Outcome done = traces.merged(good + " " + other);
  CHECK(done.code == 1);
  CHECK(contains(done.output, other));
  CHECK(contains(done.output, said));
  CHECK_FALSE(std::filesystem::exists(traces.dir / "all.json"));
}

TEST_CASE("a file that is there is not replaced by merged traces", "[cli]") {
  const Traces traces;
  const std::string a = traces.file("a", trace(0, 0).dump());
  traces.file("all.json", "mine");
  const Outcome done = traces.merged(a);
  CHECK(done.code == 1);
  CHECK(contains(done.output, "is there already"));
  const Outcome missing = traces.merged(a + ".no", "new.json");
  CHECK(missing.code == 1);
  CHECK(contains(missing.output, "cannot be read"));
}

}  // namespace rekindle::testing
