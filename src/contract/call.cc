#include "src/contract/call.h"

#include <algorithm>
#include <string>

namespace rekindle::contract {

namespace {

bool is_start(const Json& start) {
  if (!start.is_array() || start.empty()) return false;
  return start.size() == 1 ? start[0] == "model"
                           : start.size() == 2 && start[0] == "module" && start[1].is_string();
}

bool is_path_step(const Json& step) {
  if (is_list_of(step, 1)) return step[0] == "function";
  if (!is_list_of(step, 2)) return false;
  if (is_one_of(step[0], {"code", "cell", "class"})) return is_position(step[1]);
  return (step[0] == "item" && (is_integer(step[1]) || is_text(step[1]))) ||
         (is_one_of(step[0], {"submodule", "attribute"}) && is_text(step[1]));
}

bool is_closure(const Json& parts, std::size_t tensors) {
  return is_list_of(parts, 6) && is_path(parts[0]) && is_path(parts[1]) && is_text(parts[2]) &&
         is_call_value(parts[3], tensors) && is_call_value(parts[4], tensors) &&
         is_list(parts[5], [&](const Json& cell) { return is_call_value(cell, tensors); });
}

}  // namespace

bool is_path(const Json& json) {
  return json.is_array() && !json.empty() && is_start(json[0]) &&
         std::all_of(json.begin() + 1, json.end(), is_path_step);
}

bool is_call_value(const Json& json, std::size_t tensors) {
  if (!json.is_object() || json.size() != 1) return false;
  const std::string& kind = json.begin().key();
  const Json& content = *json.begin();
  const auto inner = [&](const Json& item) { return is_call_value(item, tensors); };
  if (kind == "tensor") return is_position(content) && content.get<std::size_t>() < tensors;
  if (kind == "plain") return is_scalar(content);
  if (kind == "object") return is_path(content);
  if (is_among(kind, {"list", "tuple"})) return is_list(content, inner);
  if (kind == "dict")
    return is_list(content, [&](const Json& pair) { return is_list_of(pair, 2) && is_list(pair, inner); });
  if (is_among(kind, {"dtype", "device"})) return content.is_string();
  if (kind == "size") return is_list(content, is_integer);
  if (kind == "method") return is_list_of(content, 2) && inner(content[0]) && is_path(content[1]);
  if (kind == "partial") return is_list_of(content, 3) && is_list(content, inner);
  return kind == "closure" && is_closure(content, tensors);
}

}  // namespace rekindle::contract
