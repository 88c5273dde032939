// From a contract to JSON; the counterpart of parse.cc.
#include "src/contract/contract.h"
#include "src/contract/fields.h"

namespace rekindle::contract {

namespace {

template <typename Value>
requires std::is_arithmetic_v<Value> || std::same_as<Value, std::string> || std::same_as<Value, Json> Json
json_of(const Value& value) {
  return value;
}

Json json_of(const Structure& structure) { return structure.described(); }

template <typename Item>
Json json_of(const std::vector<Item>& items);
template <typename Value>
Json json_of(const std::optional<Value>& value);

template <typename... Items>
Json record(const Items&... items) {
  Json made = Json::array();
  (made.push_back(json_of(items)), ...);
  return made;
}

template <typename Part>
Json json_of_fields(const Part& part) {
  Json made = Json::object();
  for_each_field(part, [&](const char* name, const auto& field) { made[name] = json_of(field); });
  return made;
}

Json json_of(const ArgumentSizes& sizes) {
  Json made = json_of(sizes.dims);
  if (sizes.strides) made.push_back(json_of(*sizes.strides));
  return made;
}

Json json_of(const Question& question) { return record(question.where, question.what, question.answer); }

Json json_of(const FixedSize& fixed) { return record(fixed.places, fixed.why); }

Json json_of(const Layout& layout) { return record(layout.kind, layout.numbers); }

Json json_of(const SavedGroup& group) { return record(group.results, group.inputs); }

Json json_of(const SavedTensor& saved) { return record(saved.tensor, saved.results, saved.inputs); }

Json json_of(const SetAttribute& attribute) { return record(attribute.module, attribute.name); }

Json json_of(const TensorSizes& sizes) { return record(sizes.dtype, sizes.dims); }

Json json_of(const SizeSource& source) {
  if (source.index() == 0) return std::get<0>(source);
  return record(std::get<1>(source).first, std::get<1>(source).second);
}

template <typename Item>
Json json_of(const std::vector<Item>& items) {
  Json made = Json::array();
  for (const auto& item : items) made.push_back(json_of(static_cast<const Item&>(item)));
  return made;
}

template <typename Value>
Json json_of(const std::optional<Value>& value) {
  return value ? json_of(*value) : Json();
}

}  // namespace

Json json_of(const CallSizes& sizes) { return json_of_fields(sizes); }

Json json_of(const FunctionCall& call) { return json_of_fields(call); }

std::string print(const Contract& contract) { return json_of_fields(contract).dump(); }

std::vector<std::string> field_names() {
  std::vector<std::string> names;
  const Contract any;
  for_each_field(any, [&](const char* name, const auto&) { names.emplace_back(name); });
  return names;
}

}  // namespace rekindle::contract
