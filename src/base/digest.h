// Digest: the 128-bit XXH3 hash that names entries and stages.
//
// XXH3-128 is not cryptographic: it guards against accidents, not against an adversary
// (docs/entry-format.md, "Keys and ids").
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle {

struct Digest {
  std::array<std::uint8_t, 16> bytes{};  // big-endian canonical form, as XXH128_canonical_t

  auto operator<=>(const Digest&) const = default;
  // 32 lower-case hexadecimal digits.
  std::string hex() const;
  // The 16 raw bytes, usable as a database key.
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  // kInvalidArgument unless `hex` is exactly 32 hexadecimal digits.
  static Result<Digest> from_hex(std::string_view hex);
};

// Digest of one buffer.
Digest digest_of(std::string_view data);
// XXH3-64 of one buffer: the integrity checksum of stored records.
std::uint64_t checksum_of(std::string_view data);

// Incremental digest of a byte stream. Not thread-safe. Callers delimit their fields: see KeyBuilder.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;

  void update(std::string_view data);
  // The digest of everything so far; the stream may be continued.
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rekindle
