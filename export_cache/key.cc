#include "export_cache/key.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/bytes.h"

namespace rekindle {
namespace {

constexpr std::string_view kDomain = "rekindle.key";

// At most kMaxFieldText bytes, cut before a UTF-8 continuation byte.
std::string shortened(std::string_view text) {
  if (text.size() <= kMaxFieldText) return std::string(text);
  std::size_t end = kMaxFieldText - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string hexadecimal(std::string_view data) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : data.substr(0, kMaxFieldText)) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string decimal(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

template <typename T>
std::string_view raw_view(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace

const char* field_type_name(FieldType type) {
  switch (type) {
    case FieldType::kNone:
      return "none";
    case FieldType::kBool:
      return "bool";
    case FieldType::kInt:
      return "int";
    case FieldType::kDouble:
      return "double";
    case FieldType::kString:
      return "string";
    case FieldType::kBytes:
      return "bytes";
    case FieldType::kDigest:
      return "digest";
    case FieldType::kBigInt:
      return "bigint";
  }
  return "none";
}

KeyBuilder::KeyBuilder() {
  ByteWriter head;
  head.raw(kDomain);
  head.number(kKeyFormatVersion);
  stream_.update(head.bytes());
}

void KeyBuilder::append(std::string_view name, FieldType type, std::string_view value, std::string text) {
  ByteWriter typed;
  typed.number(static_cast<std::uint8_t>(type));
  typed.string(value);
  ByteWriter named;
  named.string(name);
  stream_.update(named.bytes());
  stream_.update(typed.bytes());
  fields_.push_back({std::string(name), type, shortened(text), digest_of(typed.bytes())});
}

void KeyBuilder::add(std::string_view name, std::nullptr_t) { append(name, FieldType::kNone, {}, "none"); }

void KeyBuilder::add(std::string_view name, std::string_view value) {
  // The text is cut here as well, so that a long value is not copied for its explanation.
  append(name, FieldType::kString, value, std::string(value.substr(0, 2 * kMaxFieldText)));
}

void KeyBuilder::add(std::string_view name, KeyBytes value) {
  append(name, FieldType::kBytes, value.data, hexadecimal(value.data));
}

void KeyBuilder::add(std::string_view name, KeyBigInt value) {
  append(name, FieldType::kBigInt, value.decimal, std::string(value.decimal));
}

void KeyBuilder::add(std::string_view name, const Digest& value) {
  append(name, FieldType::kDigest, value.view(), value.hex());
}

void KeyBuilder::add(std::string_view name, double value) {
  const double canonical = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  append(name, FieldType::kDouble, raw_view(canonical), decimal(canonical));
}

void KeyBuilder::add_bool(std::string_view name, bool value) {
  const char byte = value ? 1 : 0;
  append(name, FieldType::kBool, {&byte, 1}, value ? "true" : "false");
}

void KeyBuilder::add_int(std::string_view name, std::int64_t value) {
  append(name, FieldType::kInt, raw_view(value), std::to_string(value));
}

std::string KeyBuilder::fields_json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KeyField& field : fields_) {
    list.push_back({{"name", field.name},
                    {"type", field_type_name(field.type)},
                    {"value", field.value},
                    {"digest", field.digest.hex()}});
  }
  nlohmann::ordered_json root;
  root["fields"] = std::move(list);
  // Names and values come from user code: bytes that are not UTF-8 are replaced, not refused.
  return root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace rekindle
