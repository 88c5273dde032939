#include "src/base/digest.h"

#include <catch2/catch.hpp>

using rekindle::Digest;
using rekindle::digest_of;

// Known answers of XXH3-128, from the xxHash specification's empty input and from `xxhsum -H2`.
TEST_CASE("digest_of gives the canonical XXH3-128", "[base]") {
  CHECK(digest_of("").hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(digest_of("rekindle").hex() != digest_of("Rekindle").hex());
}

TEST_CASE("a streamed digest equals the digest of the whole", "[base]") {
  rekindle::DigestStream stream;
  stream.update("ab");
  stream.update("");
  stream.update("cd");
  CHECK(stream.finish() == digest_of("abcd"));
  stream.update("e");
  CHECK(stream.finish() == digest_of("abcde"));
}

TEST_CASE("from_hex inverts hex and refuses anything else", "[base]") {
  const Digest digest = digest_of("x");
  REQUIRE(Digest::from_hex(digest.hex()).ok());
  CHECK(*Digest::from_hex(digest.hex()) == digest);
  CHECK_FALSE(Digest::from_hex("").ok());
  CHECK_FALSE(Digest::from_hex(digest.hex().substr(1)).ok());
  CHECK_FALSE(Digest::from_hex("zz" + digest.hex().substr(2)).ok());
}
