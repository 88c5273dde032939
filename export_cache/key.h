// KeyBuilder: named, typed, length-prefixed fields -> a digest, and the readable list of what went into it.
//
//   key    := "rekindle.key" version:u32 field*
//   field  := name:string type:u8 value:string          string := length:u64 byte*        (little-endian)
//
// Every field is delimited and typed, so no two field lists run together and 1, true, 1.0 and "1" differ.
// Order matters; the same name may come twice. Format version history: 1, first version.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"

namespace rekindle {

inline constexpr std::uint32_t kKeyFormatVersion = 1;

// DO NOT CHANGE THESE VALUES: they are hashed.
enum class FieldType : std::uint8_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,     // i64
  kDouble = 3,  // IEEE bits; every NaN is the same NaN, -0.0 differs from 0.0
  kString = 4,  // UTF-8
  kBytes = 5,
  kDigest = 6,
  kBigInt = 7,  // decimal text of an integer that does not fit i64
};
// "none", "bool", "int", "double", "string", "bytes", "digest", "bigint".
const char* field_type_name(FieldType type);

// One line of the explanation that is stored beside an entry.
struct KeyField {
  std::string name;
  FieldType type = FieldType::kNone;
  std::string value;  // for people: shortened to kMaxFieldText bytes, bytes as hexadecimal
  Digest digest;      // of type and full value: two fields are equal exactly when name and digest are
};
inline constexpr std::size_t kMaxFieldText = 80;

// Tells bytes from text in KeyBuilder::add. A view: not stored past the call.
struct KeyBytes {
  std::string_view data;
};
// Tells a decimal integer from text in KeyBuilder::add. A view: not stored past the call.
struct KeyBigInt {
  std::string_view decimal;
};

// Integers that fit i64.
template <typename T>
concept KeyInteger = std::integral<T> && !std::same_as<T, bool> &&
                     (std::signed_integral<T> || sizeof(T) < sizeof(std::int64_t));

// Not thread-safe; cheap to make. Nothing fails.
class KeyBuilder {
 public:
  KeyBuilder();

  void add(std::string_view name, std::nullptr_t);
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, KeyBytes value);
  void add(std::string_view name, KeyBigInt value);
  void add(std::string_view name, const Digest& value);
  void add(std::string_view name, double value);
  // Templates, so that no pointer becomes a bool and no unsigned number a negative one.
  template <std::same_as<bool> T>
  void add(std::string_view name, T value) {
    add_bool(name, value);
  }
  template <KeyInteger T>
  void add(std::string_view name, T value) {
    add_int(name, value);
  }

  // The digest of all fields so far; more may follow.
  Digest digest() const { return stream_.finish(); }
  const std::vector<KeyField>& fields() const { return fields_; }
  // {"fields": [{"name", "type", "value", "digest"}, ...]}: the "fields" section of an entry.
  std::string fields_json() const;

 private:
  void add_bool(std::string_view name, bool value);
  void add_int(std::string_view name, std::int64_t value);
  void append(std::string_view name, FieldType type, std::string_view value, std::string text);

  DigestStream stream_;
  std::vector<KeyField> fields_;
};

}  // namespace rekindle
