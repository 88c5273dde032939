// What the grammars of a contract's parts share.
//
//   scalar := null | bool | integer | float | text
//   integer := JSON's, of 64 bits | {"int": "0x..." | "-0x..."}           longer ones
//   float := JSON's | {"float": "nan" | "inf" | "-inf"}                   JSON has no such numbers
//   text := JSON's | {"text": text in Python's unicode-escape encoding}   what is not Unicode, as file names
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

namespace rekindle::contract {

// Keys keep their order, which tells parts of a structure.
using Json = nlohmann::ordered_json;

// Containers in one another, at most, in a contract.
constexpr int kDeepest = 900;

// Positions are below this, so that sums of some fit 64 bits.
constexpr std::int64_t kLargestPosition = std::int64_t{1} << 62;

bool is_integer(const Json& json);
bool is_text(const Json& json);
bool is_scalar(const Json& json);
bool is_position(const Json& json);
bool is_among(std::string_view name, std::initializer_list<std::string_view> names);
// Whether it is a string that is one of these.
bool is_one_of(const Json& json, std::initializer_list<std::string_view> names);

// Whether it is a list of so many items.
bool is_list_of(const Json& json, std::size_t count);

// Whether each item of a list is as `check` says.
template <typename Check>
bool is_list(const Json& json, Check check) {
  if (!json.is_array()) return false;
  for (const Json& item : json) {
    if (!check(item)) return false;
  }
  return true;
}

// The only item of an object that has one; null otherwise.
const Json* only(const Json& json, std::string_view key);

}  // namespace rekindle::contract
