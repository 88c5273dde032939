#include "src/contract/contract.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

using namespace rekindle;
using contract::Contract;
using contract::GraphFacts;
using contract::Json;

namespace {

// Of a module with a buffer, an autograd Function, and a result with views.
Json sample() {
  std::ifstream file(REKINDLE_TEST_DATA "/contract/v" + std::to_string(contract::kVersion) + ".json");
  return Json::parse(file);
}

GraphFacts facts_of_sample() { return {4, 4, 2, 1, {"seen", "linear.bias", "linear.weight", "other"}}; }

std::string refused(const Json& json) {
  const auto parsed = contract::parse(json.dump());
  return parsed.ok() ? "" : parsed.error().message;
}

// `json` with another value at a JSON pointer.
Json with(Json json, const char* place, Json value) {
  json[Json::json_pointer(place)] = std::move(value);
  return json;
}

// Whether a contract with a result like this fits the graph.
bool fits(const Json& structure) {
  const auto parsed = contract::from_json(with(sample(), "/structure", structure));
  return parsed.ok() && contract::check_fit(*parsed, facts_of_sample()).ok();
}

}  // namespace

TEST_CASE("a contract that was written by an export is read and printed as it was", "[contract]") {
  const Json json = sample();
  const auto parsed = contract::parse(json.dump());
  REQUIRE(refused(json).empty());
  CHECK(contract::print(*parsed) == json.dump());
  const auto fit = contract::check_fit(*parsed, facts_of_sample());
  CHECK((fit.ok() ? "" : fit.error().message) == "");
}

TEST_CASE("no field may be missing, and there is no other", "[contract]") {
  for (const std::string& name : contract::field_names()) {
    Json json = sample();
    json.erase(name);
    CHECK(refused(json) == "the contract's " + name + " is missing");
    CHECK_FALSE(refused(with(sample(), ("/" + name).c_str(), "no such thing")).empty());
  }
  CHECK_FALSE(refused(with(sample(), "/more", 1)).empty());
  CHECK_FALSE(refused(with(sample(), "/functions/0/more", 1)).empty());
}

TEST_CASE("a field has its type and its range", "[contract]") {
  const std::pair<const char*, Json> wrong[] = {
      {"/used/0", -1},
      {"/used/0", std::uint64_t{1} << 62},
      {"/used/0", 1e300},
      {"/used/0", true},
      {"/used", {0, 0}},
      {"/state", {"a", "a"}},
      {"/grad", 1},
      {"/expected_cotangents", {1}},
      {"/output_layouts", {{"sideways", Json::array()}}},
      {"/output_layouts", {{"order", {-1}}}},
      {"/saved_groups", {{{0}, {1}, {2}}}},
      {"/saved_tensors", {{0, {0}}}},
      {"/saved_tensors", {{-1, {0}, {1}}}},
      {"/saved_tensors", {{0, {0, 0}, {1}}}},
      {"/saved_writes", {0}},
      {"/saved_writes", {{0, {0}, {1, 1}}}},
      {"/saved_constants", {"a", "a"}},
      {"/attributes", Json::parse(R"([["a", "b"], ["a", "b"]])")},
      {"/attributes", Json::parse(R"([["a", 1]])")},
      {"/saved_constants", {0}},
      {"/shapes/sizes/0", {Json::array({1}), 4}},
      {"/shapes/guards", {{"where", "what", "so"}}},
      {"/functions/0/tensors/0", 99},
      {"/functions/0/dirty", {99}},
      {"/functions/0/function", {{"file", "os"}}},
      {"/functions/0/arguments/0", {{"tensor", 99}}},
      {"/functions/0/arguments/0", {{"call", "os.system"}}},
      {"/functions/0/sizes", {{"float32", {{7, 0}}}}},
  };
  for (const auto& [place, value] : wrong) {
    INFO(place << " = " << value.dump());
    CHECK_FALSE(refused(with(sample(), place, value)).empty());
  }
}

TEST_CASE("a result is made of what there is", "[contract]") {
  for (
      const char* right : {
          R"({"value": null})",
          R"({"tuple": [{"output": 2}, {"input": 3}, {"number": 0}, {"value": {"float": "-inf"}}]})",
          R"({"dict": [[1, {"value": {"int": "-0x1f"}}], [null, {"value": {"text": "\\udcff"}}]]})",
          R"({"object": ["module", "Name"], "items": [["itself", {"same": 0}]]})",
          R"({"tuple": [{"shared": {"list": [{"output": 0}]}}, {"same": 0}]})",
          R"({"list": [{"shared": {"list": [{"object": ["m", "N"], "items": []}]}}, {"same": 0}, {"same": 1}]})",
      }) {
    INFO(right);
    CHECK(fits(Json::parse(right)));
  }
  for (const char* wrong : {
           R"({"output": 3})",
           R"({"input": 4})",
           R"({"number": 1})",
           R"({"view": 0})",
           R"({"same": 0})",
           R"({"shared": {"list": [{"same": 0}]}})",
           R"({"tuple": [{"shared": {"list": []}}, {"same": 1}]})",
           R"({"list": [{"object": ["module", "Name"], "items": []}, {"same": 1}]})",
           R"({"value": []})",
           R"({"value": {"float": "1"}})",
           R"({"value": {"int": "12"}})",
           R"({"items": [], "object": ["module", "Name"]})",
           R"({"object": ["module", "Name"]})",
           R"({"dict": [[[], {"value": 1}]]})",
           R"({"tuple": [{"output": 0, "input": 0}]})",
       }) {
    INFO(wrong);
    CHECK_FALSE(fits(Json::parse(wrong)));
  }
}

TEST_CASE("a result has a part for each attribute that is set", "[contract]") {
  const auto fits_with = [](const char* structure) {
    Json text = with(sample(), "/attributes", Json::parse(R"([["", "seen"], ["body.first", "seen"]])"));
    const auto parsed = contract::from_json(with(std::move(text), "/structure", Json::parse(structure)));
    return parsed.ok() && contract::check_fit(*parsed, facts_of_sample()).ok();
  };
  CHECK(fits_with(R"({"tuple": [{"output": 0}, {"value": 1}, {"input": 0}]})"));
  CHECK(fits_with(R"({"with_views": [], "result": {"tuple": [{"output": 0}, {"value": 1}, {"input": 0}]}})"));
  CHECK_FALSE(fits_with(R"({"tuple": [{"output": 0}, {"value": 1}]})"));
  CHECK_FALSE(fits_with(R"({"list": [{"output": 0}, {"value": 1}, {"input": 0}]})"));
  CHECK_FALSE(fits_with(R"({"output": 0})"));
}

TEST_CASE("a view is made by the methods of a tensor that make views", "[contract]") {
  const auto viewed = [](Json steps) {
    return Json{{"with_views",
                 {{{"of", {{"input", 0}}},
                   {"detached", false},
                   {"is_view", true},
                   {"one_of_many", false},
                   {"steps", std::move(steps)}}}},
                {"result", {{"view", 0}}}};
  };
  const Json none = Json::object();
  CHECK(fits(viewed({{"t", Json::array(), none, nullptr}})));
  CHECK(fits(viewed({{"__getitem__", {{{"slice", {nullptr, -1, nullptr}}}}, none, nullptr}})));
  CHECK(fits(viewed({{"unbind", Json::array(), {{"dim", 1}}, 0}})));
  CHECK_FALSE(fits(viewed({{"numpy", Json::array(), none, nullptr}})));
  CHECK_FALSE(fits(viewed({{"t", Json::array(), none}})));
  CHECK_FALSE(fits(viewed({{"view", {{{"number", 99}}}, none, nullptr}})));
}

TEST_CASE("a contract is about one graph", "[contract]") {
  const Contract made = *contract::from_json(sample());
  GraphFacts facts = facts_of_sample();
  const auto wrong = [&](auto change) {
    GraphFacts other = facts;
    change(other);
    const auto fit = contract::check_fit(made, other);
    return fit.ok() ? "" : fit.error().message;
  };
  CHECK(wrong([](GraphFacts&) {}) == "");
  CHECK(wrong([](GraphFacts& of) { of.state = {"seen"}; }) == "the contract's state does not fit its graph");
  CHECK(wrong([](GraphFacts& of) { of.inputs = 3; }) == "the contract's used does not fit its graph");
  CHECK(wrong([](GraphFacts& of) { of.outputs = 0; }) == "the contract's writes does not fit its graph");
  CHECK(wrong([](GraphFacts& of) { of.arguments = 2; }) == "the contract's shapes does not fit its graph");
}

TEST_CASE("what eager has saved is an input or a result, between others", "[contract]") {
  const GraphFacts facts = facts_of_sample();
  const auto fits_with = [&](Json saved) {
    const auto parsed = contract::from_json(with(sample(), "/saved_tensors", std::move(saved)));
    return parsed.ok() && contract::check_fit(*parsed, facts).ok();
  };
  const std::size_t last = facts.inputs + facts.outputs - 2;  // the output after it is what is written
  CHECK(fits_with({{last, {1}, {3}}}));
  CHECK_FALSE(fits_with({{last + 1, {1}, {3}}}));
  CHECK_FALSE(fits_with({{last, {facts.cotangents}, {3}}}));
  CHECK_FALSE(fits_with({{last, {1}, {facts.inputs}}}));
}

TEST_CASE("what eager has saved of the writes is one of them", "[contract]") {
  const GraphFacts facts = facts_of_sample();
  const auto fits_with = [&](Json saved) {
    const auto parsed = contract::from_json(with(sample(), "/saved_writes", std::move(saved)));
    return parsed.ok() && contract::check_fit(*parsed, facts).ok();
  };
  CHECK(fits_with({{0, {1}, {3}}}));
  CHECK_FALSE(fits_with({{1, {1}, {3}}}));
  CHECK_FALSE(fits_with({{0, {facts.cotangents}, {3}}}));
  CHECK_FALSE(fits_with({{0, {1}, {facts.inputs}}}));
}

TEST_CASE("what eager has saved may be a constant that the contract names", "[contract]") {
  const GraphFacts facts = facts_of_sample();
  const auto fits_with = [&](std::size_t tensor) {
    Json text = with(sample(), "/saved_constants", {"module.scale", "module.config.scale"});
    const auto parsed = contract::from_json(with(std::move(text), "/saved_tensors", {{tensor, {1}, {3}}}));
    return parsed.ok() && contract::check_fit(*parsed, facts).ok();
  };
  const std::size_t first = facts.inputs + facts.outputs;
  CHECK_FALSE(fits_with(first - 1));
  CHECK(fits_with(first));
  CHECK(fits_with(first + 1));
  CHECK_FALSE(fits_with(first + 2));
}

TEST_CASE("results on the way of each other are no circle", "[contract]") {
  GraphFacts facts = facts_of_sample();
  facts.cotangents = 3;
  const auto fits_with = [&](Json inner) {
    const auto parsed = contract::from_json(with(sample(), "/inner_results", std::move(inner)));
    return parsed.ok() && contract::check_fit(*parsed, facts).ok();
  };
  CHECK(fits_with(Json::parse("[]")));
  CHECK(fits_with(Json::parse("[[1, 2], [2], []]")));
  CHECK_FALSE(fits_with(Json::parse("[[1], [0], []]")));
  CHECK_FALSE(fits_with(Json::parse("[[0], [], []]")));
  CHECK_FALSE(fits_with(Json::parse("[[1], [2], []]")));
  CHECK_FALSE(fits_with(Json::parse("[[3], [], []]")));
  CHECK_FALSE(fits_with(Json::parse("[[], []]")));
}

TEST_CASE("text that is no contract is refused", "[contract]") {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("\xff"), std::string(100'000, '['),
        std::string("{\"structure\": {\"value\": NaN}}")}) {
    const auto parsed = contract::parse(text);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().code == ErrorCode::kCorruption);
  }
}
