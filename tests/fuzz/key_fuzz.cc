// Key fields of any names and values: their JSON is always valid, equal
// fields give equal keys, others do not.
#include "export_cache/key.h"

#include <nlohmann/json.hpp>

#include "src/base/bytes.h"
#include "tests/fuzz/fuzz.h"

using namespace rekindle;

namespace {

void add_field(KeyBuilder& key, ByteReader& reader) {
  const auto type = reader.number<std::uint8_t>();
  const std::string_view name = reader.raw(std::min<std::size_t>(reader.remaining(), type / 8));
  const std::string_view text = reader.raw(std::min<std::size_t>(reader.remaining(), type % 64));
  switch (type % 8) {
    case 0:
      return key.add(name, nullptr);
    case 1:
      return key.add(name, text.empty());
    case 2:
      return key.add(name, reader.number<std::int64_t>());
    case 3:
      return key.add(name, reader.number<double>());
    case 4:
      return key.add(name, text);
    case 5:
      return key.add(name, KeyBytes{text});
    case 6:
      return key.add(name, digest_of(text));
    default:
      return key.add(name, KeyBigInt{text});
  }
}

KeyBuilder build(std::string_view bytes) {
  KeyBuilder key;
  ByteReader reader(bytes);
  while (!reader.failed() && !reader.at_end()) add_field(key, reader);
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  KeyBuilder key = build(bytes);
  const auto json = nlohmann::json::parse(key.fields_json(), nullptr, /*allow_exceptions=*/false);
  fuzz::require(json.is_object() && json["fields"].size() == key.fields().size(),
                "every field is in the JSON");
  fuzz::require(build(bytes).digest() == key.digest(), "equal fields have equal keys");
  const Digest before = key.digest();
  key.add("", nullptr);
  fuzz::require(key.digest() != before, "one more field is another key");
  return 0;
}
