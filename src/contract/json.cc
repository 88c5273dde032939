#include "src/contract/json.h"

#include <algorithm>
#include <string>

namespace rekindle::contract {

namespace {

bool is_hexadecimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 2 && text.starts_with("0x") &&
         text.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

}  // namespace

const Json* only(const Json& json, std::string_view key) {
  return json.is_object() && json.size() == 1 && json.begin().key() == key ? &*json.begin() : nullptr;
}

bool is_integer(const Json& json) {
  const Json* tagged = only(json, "int");
  return json.is_number_integer() ||
         (tagged != nullptr && tagged->is_string() && is_hexadecimal(tagged->get_ref<const std::string&>()));
}

bool is_text(const Json& json) {
  const Json* tagged = only(json, "text");
  return json.is_string() || (tagged != nullptr && tagged->is_string());
}

bool is_scalar(const Json& json) {
  if (json.is_primitive()) return true;
  const Json* tagged = only(json, "float");
  return is_integer(json) || is_text(json) ||
         (tagged != nullptr && is_one_of(*tagged, {"nan", "inf", "-inf"}));
}

bool is_position(const Json& json) {
  if (json.is_number_unsigned()) return json.get<std::uint64_t>() < std::uint64_t{kLargestPosition};
  if (!json.is_number_integer()) return false;
  const auto position = json.get<std::int64_t>();
  return position >= 0 && position < kLargestPosition;
}

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_one_of(const Json& json, std::initializer_list<std::string_view> names) {
  return json.is_string() && is_among(json.get_ref<const std::string&>(), names);
}

bool is_list_of(const Json& json, std::size_t count) { return json.is_array() && json.size() == count; }

}  // namespace rekindle::contract
