#include "src/base/bytes.h"

#include <catch2/catch.hpp>

using rekindle::ByteReader;
using rekindle::ByteWriter;

TEST_CASE("what the writer wrote, the reader reads", "[base]") {
  ByteWriter writer;
  writer.number<std::uint32_t>(7);
  writer.string("graph");
  writer.number<double>(0.5);
  ByteReader reader(writer.bytes());
  CHECK(reader.number<std::uint32_t>() == 7);
  CHECK(reader.string() == "graph");
  CHECK(reader.number<double>() == 0.5);
  CHECK(reader.at_end());
}

TEST_CASE("a length past the end fails and stays failed", "[base]") {
  ByteWriter writer;
  writer.number<std::uint64_t>(1u << 30);
  writer.raw("abc");
  ByteReader reader(writer.bytes());
  CHECK(reader.string().empty());
  CHECK(reader.failed());
  CHECK(reader.number<std::uint8_t>() == 0);
  CHECK_FALSE(reader.at_end());
}

TEST_CASE("a count that cannot fit in what is left fails before anything is allocated", "[base]") {
  ByteWriter writer;
  writer.number<std::uint64_t>(~std::uint64_t{0});
  ByteReader reader(writer.bytes());
  CHECK(reader.count(8) == 0);
  CHECK(reader.failed());
}
