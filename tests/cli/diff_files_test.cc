// `rekindle diff`: several ranks, orders, and files that are damaged or no statistics.
#include <algorithm>
#include <cmath>

#include "tests/cli/diff_support.h"

using namespace rekindle::testing;

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
  Json negative = tensor(0, "forward", "one"), share = negative;
  negative["count"] = -1;
  share["zeros"] = nullptr;
  refused("newer", {newer}, "", "has version 2 of the format, this program reads 1");
  refused("wrong", {kHeader, wrong}, "", "rank_0.jsonl:2 is no record");
  refused("odd", {kHeader, odd}, "", "there is no phase sideways");
  refused("many", {kHeader, many}, "", "more NaNs than elements");
  refused("negative", {kHeader, negative}, "", "no tensor of so many elements");
  refused("share", {kHeader, share}, "", "zeros is no share");
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

TEST_CASE("ranks that are missing, or there twice, are not merged", "[cli]") {
  const TempDir dir;
  std::vector<Json> lines = run();
  lines[0]["world"] = 3;
  for (const int rank : {0, 2}) {
    lines[0]["rank"] = rank;
    write(dir, "some", lines);
  }
  const std::string merge = "diff merge " + dir / "some", to = " -o " + dir / "merged",
                    shown = "2>&1 </dev/null";
  const auto missing = rekindle_command(merge + to, shown);
  REQUIRE(missing.code == 1);
  REQUIRE(contains(missing.output, "is of 3 ranks, and rank 1 is missing"));
  const auto twice = rekindle_command(merge + " " + dir / "some" + to, shown);
  REQUIRE(twice.code == 1);
  REQUIRE(contains(twice.output, "are both of rank 0"));
}

TEST_CASE("where a rank ends early, the merged run does, too", "[cli]") {
  const TempDir dir;
  std::vector<Json> lines = run();
  lines[0]["world"] = 2;
  write(dir, "cut", lines);
  lines[0]["rank"] = 1;
  lines.resize(1 + kStep + 5);  // in the midst of step 1
  lines.push_back({{"kind", "limit"}});
  write(dir, "cut", lines);
  const Json found = parsed(rekindle_command("diff merge " + dir / "cut" + " -o " + dir / "merged --json"));
  REQUIRE(found["tensors"] == 8);
}

TEST_CASE("one phase alone can be compared", "[cli]") {
  const std::map<std::string, Json> other = {{"norm", 33.0}};
  REQUIRE(with(kTwo, other, "--phase parameter").code == 0);
  REQUIRE(with(kTwo, other, "--phase parameter").json["compared"] == 4);
  REQUIRE(with(kTwo, other, "--phase forward").code == 1);
  REQUIRE(with(kTwo, other, "--phase sideways").code == 64);
}
