#include "src/contract/view_steps.h"

#include <algorithm>
#include <string>

namespace rekindle::contract {

namespace {

bool is_step_name(const Json& json) {
  if (!json.is_string()) return false;
  const std::string_view name = json.get_ref<const std::string&>();
  return std::find(kViewProperties.begin(), kViewProperties.end(), name) != kViewProperties.end() ||
         std::find(kViewMethods.begin(), kViewMethods.end(), name) != kViewMethods.end();
}

bool is_argument(const Json& json, std::size_t& numbers) {
  const auto inner = [&](const Json& item) { return is_argument(item, numbers); };
  if (json.is_null() || is_integer(json) || is_one_of(json, {"..."})) return true;
  if (json.is_array()) return is_list(json, inner);
  if (const Json* parts = only(json, "slice")) return is_list_of(*parts, 3) && is_list(*parts, inner);
  const Json* number = only(json, "number");
  if (number == nullptr || !is_position(*number)) return false;
  numbers = std::max(numbers, number->get<std::size_t>() + 1);
  return true;
}

bool is_step(const Json& step, std::size_t& numbers) {
  const auto argument = [&](const Json& item) { return is_argument(item, numbers); };
  return is_list_of(step, 4) && is_step_name(step[0]) && is_list(step[1], argument) && step[2].is_object() &&
         std::all_of(step[2].begin(), step[2].end(), argument) &&
         (step[3].is_null() || step[3].is_number_integer());
}

}  // namespace

bool are_view_steps(const Json& steps, std::size_t& numbers) {
  return is_list(steps, [&](const Json& step) { return is_step(step, numbers); });
}

}  // namespace rekindle::contract
