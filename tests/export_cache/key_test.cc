#include "export_cache/key.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>
#include <string>

#include "tests/support/golden.h"

using namespace rekindle;

namespace {

Digest digest_with(auto... values) {
  KeyBuilder key;
  (key.add("x", values), ...);
  return key.digest();
}

}  // namespace

TEST_CASE("the digest of every field type is pinned", "[export_cache]") {
  KeyBuilder key;
  std::string lines = "empty " + key.digest().hex() + "\n";
  const auto pin = [&](const char* name, auto value) {
    key.add(name, value);
    const KeyField& field = key.fields().back();
    lines += std::string(name) + " " + field_type_name(field.type) + " " + field.value + " " +
             field.digest.hex() + " " + key.digest().hex() + "\n";
  };
  pin("nothing", nullptr);
  pin("yes", true);
  pin("minus", -7);
  pin("tenth", 0.1);
  pin("nan", std::numeric_limits<double>::quiet_NaN());
  pin("text", "gpt2");
  pin("bytes", KeyBytes{std::string_view("\x00\xFF\x10", 3)});
  pin("inner", digest_of("inner"));
  pin("big", KeyBigInt{"170141183460469231731687303715884105728"});
  testing::check_golden("keys/types.txt", lines);
}

TEST_CASE("values of different types never share a digest", "[export_cache]") {
  std::set<Digest> digests = {digest_with(nullptr),
                              digest_with(1),
                              digest_with(true),
                              digest_with(1.0),
                              digest_with("1"),
                              digest_with(0),
                              digest_with(false),
                              digest_with(0.0),
                              digest_with(-0.0),
                              digest_with(""),
                              digest_with(KeyBytes{""}),
                              digest_with(KeyBytes{"1"}),
                              digest_with(KeyBigInt{"1"}),
                              digest_with(Digest{}),
                              KeyBuilder().digest()};
  REQUIRE(digests.size() == 15);
}

TEST_CASE("fields do not run together and their order counts", "[export_cache]") {
  KeyBuilder ab, ba, joined, renamed;
  ab.add("a", "b");
  ab.add("c", "d");
  ba.add("c", "d");
  ba.add("a", "b");
  joined.add("a", "bcd");
  renamed.add("ab", "");
  renamed.add("c", "d");
  REQUIRE(std::set<Digest>{ab.digest(), ba.digest(), joined.digest(), renamed.digest()}.size() == 4);
}

TEST_CASE("two NaNs are one value, two zeros are not", "[export_cache]") {
  REQUIRE(digest_with(std::numeric_limits<double>::quiet_NaN()) ==
          digest_with(-std::numeric_limits<double>::signaling_NaN()));
  REQUIRE(digest_with(0.0) != digest_with(-0.0));
}

TEST_CASE("the readable value is short, the digest covers all of it", "[export_cache]") {
  KeyBuilder one, two;
  one.add("source", std::string(5000, 'x') + "1");
  two.add("source", std::string(5000, 'x') + "2");
  REQUIRE(one.fields()[0].value.size() <= kMaxFieldText);
  REQUIRE(one.fields()[0].value == two.fields()[0].value);
  REQUIRE(one.fields()[0].digest != two.fields()[0].digest);
  REQUIRE(one.digest() != two.digest());
}

TEST_CASE("the field list survives text that is not UTF-8", "[export_cache]") {
  KeyBuilder key;
  key.add("na\"me", std::string_view("\xFF\n"));
  const std::string json = key.fields_json();
  REQUIRE(json.find("\"na\\\"me\"") != std::string::npos);
  REQUIRE(json.find("\xEF\xBF\xBD") != std::string::npos);
  REQUIRE(json.find('\n') == std::string::npos);
}
