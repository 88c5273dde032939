// From JSON to a contract. Each `read` returns false for JSON that is not what its second parameter is.
#include <algorithm>
#include <string>

#include "src/contract/call.h"
#include "src/contract/contract.h"
#include "src/contract/fields.h"

namespace rekindle::contract {

namespace {

constexpr std::size_t kShown = 80;  // characters of what is wrong, in a message

bool read(const Json& json, bool& into) {
  if (!json.is_boolean()) return false;
  into = json.get<bool>();
  return true;
}

bool read(const Json& json, std::string& into) {
  if (!json.is_string()) return false;
  into = json.get<std::string>();
  return true;
}

bool read(const Json& json, std::int64_t& into) {
  const bool fits =
      json.is_number_unsigned() ? json.get<std::uint64_t>() <= INT64_MAX : json.is_number_integer();
  if (fits) into = json.get<std::int64_t>();
  return fits;
}

bool read(const Json& json, std::size_t& into) {
  if (!is_position(json)) return false;
  into = json.get<std::size_t>();
  return true;
}

bool read(const Json& json, Json& into) {
  into = json;  // of a call, whose values are checked with its inputs
  return true;
}

bool read(const Json& json, Structure& into) {
  auto found = Structure::of(json);
  if (found) into = *std::move(found);
  return found.has_value();
}

template <typename Item>
bool read(const Json& json, std::vector<Item>& into);
template <typename Value>
bool read(const Json& json, std::optional<Value>& into);
template <typename First, typename Second>
bool read(const Json& json, std::pair<First, Second>& into);

// An object with the part's fields and no other.
template <typename Part>
requires std::same_as<Part, CallSizes> || std::same_as<Part, FunctionCall>
bool read_fields(const Json& json, Part& into) {
  if (!json.is_object()) return false;
  bool right = true;
  std::size_t count = 0;
  for_each_field(into, [&](const char* name, auto& field) {
    ++count;
    right = right && json.contains(name) && read(json[name], field);
  });
  return right && json.size() == count;
}

// A list of just these items.
template <typename... Items>
bool read_record(const Json& json, Items&... items) {
  std::size_t i = 0;
  return is_list_of(json, sizeof...(Items)) && (read(json[i++], items) && ...);
}

bool are_sizes(const std::vector<std::int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [](auto size) { return size >= 0 && size < kLargestPosition; });
}

bool read(const Json& json, ArgumentSizes& into) {
  if (!json.is_array()) return false;
  into = {};
  for (const Json& size : json) {
    if (into.strides) return false;  // they come last
    if (size.is_array() ? !read(size, into.strides) : !read(size, into.dims.emplace_back())) return false;
  }
  return are_sizes(into.dims) && (!into.strides || are_sizes(*into.strides));
}

bool read(const Json& json, Question& into) { return read_record(json, into.where, into.what, into.answer); }

bool read(const Json& json, FixedSize& into) { return read_record(json, into.places, into.why); }

bool read(const Json& json, SavedGroup& into) { return read_record(json, into.results, into.inputs); }

bool read(const Json& json, SavedTensor& into) {
  return read_record(json, into.tensor, into.results, into.inputs);
}

bool read(const Json& json, SetAttribute& into) { return read_record(json, into.module, into.name); }

bool read(const Json& json, TensorSizes& into) { return read_record(json, into.dtype, into.dims); }

bool read(const Json& json, Layout& into) {
  return read_record(json, into.kind, into.numbers) && are_sizes(into.numbers) &&
         is_among(into.kind, {"any", "as computed", "order", "strides"});
}

bool read(const Json& json, SizeSource& into) {
  if (json.is_array()) return read(json, into.emplace<1>());
  return read(json, into.emplace<0>()) && are_sizes({std::get<0>(into)});
}

bool read(const Json& json, CallSizes& into) { return read_fields(json, into); }

template <typename Item>
bool are_distinct(std::vector<Item> items) {
  std::sort(items.begin(), items.end());
  return std::adjacent_find(items.begin(), items.end()) == items.end();
}

template <typename Item>
bool are_below(const std::vector<Item>& items, std::size_t count) {
  return std::all_of(items.begin(), items.end(), [&](const Item& item) { return item < count; });
}

bool has_sources(const std::vector<TensorSizes>& sizes, std::size_t inputs) {
  return std::all_of(sizes.begin(), sizes.end(), [&](const TensorSizes& tensor) {
    return std::all_of(tensor.dims.begin(), tensor.dims.end(), [&](const SizeSource& source) {
      return source.index() == 0 || std::get<1>(source).first < inputs;
    });
  });
}

bool read(const Json& json, FunctionCall& into) {
  if (!read_fields(json, into) || !is_path(into.function) || !are_distinct(into.results)) return false;
  const std::size_t inputs = into.tensors.size();
  const auto is_argument = [&](const auto& place) { return !place || *place < into.arguments.size(); };
  const auto is_value = [&](const Json& value) { return is_call_value(value, inputs); };
  const auto is_plain = [&](const Json& value) { return is_call_value(value, 0); };
  return std::all_of(into.tensors.begin(), into.tensors.end(), is_argument) &&
         are_below(into.dirty, inputs) &&
         std::all_of(into.arguments.begin(), into.arguments.end(), is_value) &&
         std::all_of(into.others.begin(), into.others.end(), is_plain) &&
         (!into.sizes || has_sources(*into.sizes, inputs));
}

template <typename Item>
bool read(const Json& json, std::vector<Item>& into) {
  if (!json.is_array()) return false;
  into.clear();
  into.reserve(json.size());
  for (const Json& item : json) {
    Item made{};
    if (!read(item, made)) return false;
    into.push_back(std::move(made));
  }
  return true;
}

template <typename Value>
bool read(const Json& json, std::optional<Value>& into) {
  into.reset();
  return json.is_null() || read(json, into.emplace());
}

template <typename First, typename Second>
bool read(const Json& json, std::pair<First, Second>& into) {
  return read_record(json, into.first, into.second);
}

// Fields in which no item is there twice.
Status check_distinct(const Contract& contract) {
  const auto distinct_in = [](const auto& records) {
    return std::all_of(records.begin(), records.end(), [](const auto& record) {
      return are_distinct(record.results) && are_distinct(record.inputs);
    });
  };
  const std::pair<const char*, bool> fields[] = {
      {"attributes", are_distinct(contract.attributes)},
      {"used", are_distinct(contract.used)},
      {"state", are_distinct(std::vector<std::string_view>(contract.state.begin(), contract.state.end()))},
      {"writes", are_distinct(contract.writes)},
      {"gradient_order", are_distinct(contract.gradient_order)},
      {"saved_groups", !contract.saved_groups || distinct_in(*contract.saved_groups)},
      {"inner_results",
       std::all_of(contract.inner_results.begin(), contract.inner_results.end(), are_distinct<std::size_t>)},
      {"silent_writes", are_distinct(contract.silent_writes)},
      {"saved_writes", are_distinct(contract.saved_writes) && distinct_in(contract.saved_writes)},
      {"saved_tensors", are_distinct(contract.saved_tensors) && distinct_in(contract.saved_tensors)},
      {"saved_as_given", are_distinct(contract.saved_as_given)},
      {"saved_both_ways", are_distinct(contract.saved_both_ways)},
      {"saved_constants", are_distinct(contract.saved_constants)},
  };
  for (const auto& [name, are] : fields) {
    if (!are) return corruption(std::string("the contract's ") + name + " has something twice");
  }
  return {};
}

// Before anything walks it by recursion.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > kDeepest) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Contract> from_json(const Json& json) {
  if (!json.is_object()) return corruption("the contract is no table");
  Contract contract;
  std::string wrong;
  std::size_t count = 0;
  for_each_field(contract, [&](const char* name, auto& field) {
    ++count;
    const auto found = json.find(name);
    if (!wrong.empty() || (found != json.end() && read(*found, field))) return;
    const std::string shown = found == json.end() ? "missing" : found->dump(-1, ' ', /*ensure_ascii=*/true);
    wrong = std::string("the contract's ") + name + " is " + shown.substr(0, kShown);
  });
  if (!wrong.empty()) return corruption(wrong);
  if (json.size() != count) return corruption("the contract has a field that there is not");
  REKINDLE_RETURN_IF_ERROR(check_distinct(contract));
  return contract;
}

Result<Contract> parse(std::string_view text) {
  if (is_too_deep(text)) return corruption("the contract is too deep");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return corruption("the contract is no JSON");
  return from_json(json);
}

}  // namespace rekindle::contract
