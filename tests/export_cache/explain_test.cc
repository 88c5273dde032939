#include "export_cache/misses/explain.h"

#include <catch2/catch.hpp>
#include <string>

#include "export_cache/tiers/rocksdb_tier.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

LeafTree scaled(const std::string& scale, const std::string& model = "tiny.Tiny") {
  return {.model = model, .leaves = {{"model.scale", scale}, {"model.training", "True"}}, .parts = {}};
}

Digest store(ExportCache& cache, const std::string& name, const LeafTree& leaves) {
  Entry entry = make_entry(name);
  entry.meta = R"({"model":"Tiny","class":")" + leaves.model + "\"}";
  entry.leaves = leaves;
  const auto id = cache.store(digest_of(name), "", entry);
  REQUIRE(id.ok());
  return *id;
}

}  // namespace

TEST_CASE("leaves lie beside the entry: they are found by its id and change neither id nor content",
          "[export_cache]") {
  const TempDir dir;
  const auto cache = open_cache(dir.path());
  const Digest id = store(*cache, "one", scaled("1.0"));
  REQUIRE(id == entry_id(make_entry("one")));
  REQUIRE((*cache->load(id))->leaves.empty());
  const Digest bare = *cache->store(digest_of("bare"), "", make_entry("bare"));
  const auto trees = cache->leaves({bare, id});
  REQUIRE(trees.ok());
  REQUIRE(trees->at(0).empty());
  REQUIRE(trees->at(1).leaves == scaled("1.0").leaves);
  REQUIRE(cache->remove(id).ok());
  REQUIRE(cache->leaves({id})->at(0).empty());
}

TEST_CASE("the nearest entry is the most similar one of the same model", "[export_cache]") {
  const TempDir dir;
  const auto cache = open_cache(dir.path());
  REQUIRE(!*find_nearest(*cache, scaled("1.0")));
  LeafTree far = scaled("3.0");
  far.leaves[1].text = "False";
  const Digest near_id = store(*cache, "near", scaled("1.0"));
  store(*cache, "far", far);
  store(*cache, "same, but of another model", scaled("2.0", "other.Tiny"));
  const auto found = find_nearest(*cache, scaled("2.0"));
  REQUIRE(found.ok());
  REQUIRE((*found)->id == near_id);
  REQUIRE((*found)->similarity.equal == 1);
  REQUIRE((*found)->similarity.total == 2);
  REQUIRE((*find_nearest(*cache, scaled("2.0"), near_id))->id != near_id);
  REQUIRE(!*find_nearest(*cache, scaled("2.0", "none.Tiny")));
}

TEST_CASE("one read tells what a lookup is explained with, and counts nothing", "[export_cache]") {
  const TempDir dir;
  const auto cache = open_cache(dir.path());
  const Digest first = store(*cache, "one", scaled("1.0"));
  const Digest second = store(*cache, "two", scaled("2.0"));
  store(*cache, "other", scaled("1.0", "other.Tiny"));
  const auto facts = cache->facts(digest_of("one"), "tiny.Tiny", second);
  REQUIRE(facts.ok());
  REQUIRE(facts->candidates.size() == 1);
  REQUIRE(facts->candidates[0].entry == first);
  REQUIRE(!facts->gone);
  REQUIRE(facts->of_model.size() == 1);
  REQUIRE(facts->of_model[0].entry == first);
  REQUIRE(cache->remove(first).ok());
  const auto later = cache->facts(digest_of("one"), "tiny.Tiny");
  REQUIRE(later->candidates.empty());
  REQUIRE(later->gone->reason == GoneReason::kRemoved);
  REQUIRE(later->of_model.size() == 1);
  REQUIRE(later->of_model[0].leaves.leaves == scaled("2.0").leaves);
  REQUIRE(cache->stats()->lookups == 0);
}

TEST_CASE("damaged leaves cost an explanation, and no entry", "[export_cache]") {
  const TempDir dir;
  const auto cache = open_cache(dir.path());
  const Digest id = store(*cache, "one", scaled("1.0"));
  REQUIRE(make_rocksdb_tier({.dir = dir.path()})
              ->update([&](TierWriter& writer) -> Status {
                writer.put(Table::kLeaves, id, "damaged");
                return {};
              })
              .ok());
  REQUIRE(cache->leaves({id})->at(0).empty());
  REQUIRE(!*find_nearest(*cache, scaled("1.0")));
  REQUIRE(*cache->load(id));
  REQUIRE(cache->stats()->corrupt == 0);
}
