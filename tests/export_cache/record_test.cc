#include "export_cache/formats/record.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "tests/support/golden.h"

using namespace rekindle;

namespace {

const Digest kKey = digest_of("key");

std::string encoded(const std::string& raw) {
  auto record = encode_record(RecordKind::kEntry, kKey, raw);
  REQUIRE(record.ok());
  return *record;
}

// The record with `value` at `offset` and a checksum that fits, as a malicious writer would make it.
template <typename T>
std::string forged(std::string record, std::size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof(T));
  const std::uint64_t checksum = checksum_of({record.data(), record.size() - 8});
  std::memcpy(record.data() + record.size() - 8, &checksum, 8);
  return record;
}

std::string why(const std::string& record, RecordKind kind = RecordKind::kEntry, const Digest& key = kKey) {
  const auto raw = decode_record(record, kind, key);
  REQUIRE(!raw.ok());
  REQUIRE(raw.error().code == ErrorCode::kCorruption);
  return raw.error().message;
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

constexpr std::size_t kVersionAt = 4, kKindAt = 6, kCodecAt = 7, kRawLengthAt = 24, kStoredLengthAt = 32,
                      kDigestAt = 40;

}  // namespace

TEST_CASE("records come back as they were, compressed only when smaller", "[export_cache]") {
  for (const std::string& raw : {std::string(), std::string("short"), std::string(100'000, 'a')}) {
    const std::string record = encoded(raw);
    const auto back = decode_record(record, RecordKind::kEntry, kKey);
    REQUIRE(back.ok());
    REQUIRE(*back == raw);
    REQUIRE(record[kCodecAt] == (raw.size() > 1000 ? 1 : 0));
    REQUIRE(record.size() <= raw.size() + kRecordOverhead);
  }
}

TEST_CASE("every changed, missing or added byte is corruption", "[export_cache]") {
  for (const std::string& raw : {std::string("short"), std::string(5000, 'a')}) {
    const std::string record = encoded(raw);
    for (std::size_t i = 0; i < record.size(); ++i) {
      for (const int mask : {0x01, 0x80, 0xFF}) {
        std::string changed = record;
        changed[i] = static_cast<char>(changed[i] ^ mask);
        why(changed);
      }
      why(record.substr(0, i));
    }
    why(record + '\0');
  }
}

TEST_CASE("a record says what is wrong with it", "[export_cache]") {
  const std::string record = encoded(std::string(5000, 'a'));
  REQUIRE(mentions(why("RKND"), "only 4 bytes"));
  REQUIRE(mentions(why(forged(record, 0, 'X')), "magic"));
  REQUIRE(mentions(why(forged<std::uint16_t>(record, kVersionAt, 9)), "format version 9"));
  REQUIRE(mentions(why(forged<std::uint8_t>(record, kKindAt, 2)), "another kind"));
  REQUIRE(mentions(why(record, RecordKind::kManifest), "another kind"));
  REQUIRE(mentions(why(forged<std::uint8_t>(record, kCodecAt, 9)), "unknown codec 9"));
  REQUIRE(mentions(why(record, RecordKind::kEntry, digest_of("other")), "another key"));
  REQUIRE(mentions(why(forged<std::uint64_t>(record, kStoredLengthAt, ~0ull)), "stored length"));
  REQUIRE(mentions(why(forged<std::uint64_t>(record, kDigestAt, 0)), "content digest"));
}

TEST_CASE("a claimed length is refused before it is allocated", "[export_cache]") {
  const std::string record = encoded(std::string(5000, 'a'));
  REQUIRE(mentions(why(forged<std::uint64_t>(record, kRawLengthAt, kMaxRawBytes + 1)), "over the limit"));
  REQUIRE(mentions(why(forged<std::uint64_t>(record, kRawLengthAt, kMaxRawBytes)), "another length"));
  REQUIRE(mentions(why(forged<std::uint8_t>(record, kCodecAt, 0)), "raw and stored length differ"));
}
