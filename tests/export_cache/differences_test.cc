#include "export_cache/misses/differences.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace rekindle;

namespace {

std::string digest(char digit) { return std::string(32, digit); }

LeafTree tree(Leaves leaves, std::map<std::string, Leaves, std::less<>> parts = {}) {
  return {.model = "tiny.Tiny", .leaves = std::move(leaves), .parts = std::move(parts)};
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += kListMark + item;
  return text.empty() ? std::string(1, kListMark) : text;
}

using Found = std::vector<Difference>;

}  // namespace

TEST_CASE("equal trees have no differences", "[export_cache]") {
  const LeafTree one = tree({{"model.a", "1"}, {"model.b", "2"}});
  REQUIRE(differences(one, one).empty());
}

TEST_CASE("a changed, a removed and an added leaf are named", "[export_cache]") {
  const auto found =
      differences(tree({{"model.a", "1"}, {"model.b", "2"}}), tree({{"model.a", "3"}, {"model.c", "4"}}));
  REQUIRE(found == Found{{"model.a", "1", "3"}, {"model.b", "2", "absent"}, {"model.c", "absent", "4"}});
}

TEST_CASE("an order alone is a difference", "[export_cache]") {
  const auto found = differences(tree({{"model['a']", "1"}, {"model['b']", "2"}}),
                                 tree({{"model['b']", "2"}, {"model['a']", "1"}}));
  REQUIRE(found == Found{{"order of the fields", "model['a']", "model['b']"}});
}

TEST_CASE("versions come first", "[export_cache]") {
  const auto found = differences(tree({{"model.a", "1"}, {"version.torch", "2.9"}}),
                                 tree({{"model.a", "2"}, {"version.torch", "2.11"}}));
  REQUIRE(found.front() == Difference{"version.torch", "2.9", "2.11"});
}

TEST_CASE("a digest is followed down to the parts that differ", "[export_cache]") {
  const LeafTree before =
      tree({{"model.class", "m.Net " + digest('a')}},
           {{digest('a'), {{" m.Net", digest('b')}, {" Base", digest('c')}}},
            {digest('b'), {{".GAIN", "1.5"}, {".forward", "function forward " + digest('d')}}}});
  LeafTree after = before;
  after.leaves = {{"model.class", "m.Net " + digest('1')}};
  after.parts[digest('1')] = {{" m.Net", digest('2')}, {" Base", digest('c')}};
  after.parts[digest('2')] = {{".GAIN", "2.5"}, {".forward", "function forward " + digest('d')}};
  REQUIRE(differences(before, after) == Found{{"model.class m.Net.GAIN", "1.5", "2.5"}});

  after.parts.erase(digest('2'));
  REQUIRE(differences(before, after) == Found{{"model.class m.Net", "bbbbbbbb", "22222222"}});
  after.leaves = {{"model.class", "m.Other " + digest('1')}};  // another thing: its parts say nothing
  REQUIRE(differences(before, after) == Found{{"model.class", "m.Net aaaaaaaa", "m.Other 11111111"}});
}

TEST_CASE("parts in another order are told by their digest", "[export_cache]") {
  const LeafTree before =
      tree({{"model.table", "dict[2] " + digest('a')}}, {{digest('a'), {{"[1]", "x"}, {"[2]", "y"}}}});
  const LeafTree after =
      tree({{"model.table", "dict[2] " + digest('b')}}, {{digest('b'), {{"[2]", "y"}, {"[1]", "x"}}}});
  REQUIRE(differences(before, after) == Found{{"model.table", "dict[2] aaaaaaaa", "dict[2] bbbbbbbb"}});
}

TEST_CASE("lists are compared by their items", "[export_cache]") {
  const auto compare = [](const std::vector<std::string>& before, const std::vector<std::string>& after) {
    return differences(tree({{"code constant", list(before)}}), tree({{"code constant", list(after)}}));
  };
  REQUIRE(compare({"None", "0.125"}, {"None", "0.088"}) == Found{{"code constant", "0.125", "0.088"}});
  REQUIRE(compare({"None"}, {"None", "1", "2"}) ==
          Found{{"code constant", "absent", "1"}, {"code constant", "absent", "2"}});
  REQUIRE(compare({"+", "+", "-"}, {"+", "-", "-"}) == Found{{"code constant", "+", "-"}});
  REQUIRE(compare({"a", "b"}, {"b", "a"}) == Found{{"code constant", "a, b", "b, a"}});
  REQUIRE(compare({}, {"a"}) == Found{{"code constant", "absent", "a"}});
}

TEST_CASE("sequences tell how many units differ", "[export_cache]") {
  const auto compare = [](const std::string& before, const std::string& after) {
    return differences(tree({{"instructions", kSequenceMark + before}}),
                       tree({{"instructions", kSequenceMark + after}}));
  };
  REQUIRE(compare("AaBbCc", "AaXxCc") == Found{{"instructions", "3", "3, 1 differ"}});
  REQUIRE(compare("AaBbCc", "AaXxBbCcYy") == Found{{"instructions", "3", "5, 2 differ"}});
  REQUIRE(compare("", "Aa") == Found{{"instructions", "0", "1, 1 differ"}});
}

TEST_CASE("equal differences in many places are one", "[export_cache]") {
  const auto found = differences(
      tree({{"model.training", "True"}, {"model.head.training", "True"}, {"model.bias", "True"}}),
      tree({{"model.training", "False"}, {"model.head.training", "False"}, {"model.bias", "False"}}));
  REQUIRE(found == Found{{"model.training", "True", "False", 2}, {"model.bias", "True", "False"}});
}

TEST_CASE("parts that lead to themselves end", "[export_cache]") {
  const LeafTree before =
      tree({{"model.a", "x " + digest('a')}}, {{digest('a'), {{".b", "x " + digest('a')}, {".c", "1"}}}});
  LeafTree after =
      tree({{"model.a", "x " + digest('b')}}, {{digest('b'), {{".b", "x " + digest('b')}, {".c", "2"}}}});
  const auto found = differences(before, after);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].path.ends_with(".c"));
  REQUIRE(found[0].places == 2);
}

TEST_CASE("likeness counts leaves, and weighs the model most", "[export_cache]") {
  const LeafTree base = tree({{"model.a", "1"},
                              {"model.b", "2"},
                              {"input.x", "float"},
                              {"version.torch", "2"},
                              {"env HOME", "'x'"}});
  REQUIRE(similarity(base, base).equal == 4);  // observations are no fields of the key
  REQUIRE(similarity(base, base).score == Approx(1));
  LeafTree model = base, version = base;
  model.leaves[0].text = model.leaves[1].text = "0";
  version.leaves[3].text = "3";
  REQUIRE(similarity(base, model).equal == 2);
  REQUIRE(similarity(base, model).total == 4);
  REQUIRE(similarity(base, model).score < similarity(base, version).score);
  REQUIRE(similarity(base, tree({})).equal == 0);
  REQUIRE(is_observation("global m:X"));
  REQUIRE(!is_observation("model.global m"));
}
