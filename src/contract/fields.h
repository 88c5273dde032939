// The names of the fields of a contract's parts, in the order in which they are written. What reads and what
// prints a contract walk over the same fields.
#pragma once

#include <concepts>
#include <type_traits>

#include "src/contract/contract.h"

namespace rekindle::contract {

// Calls visit(name, field) for each field of a part that is an object; `Part` may be const.
template <typename Part, typename Visit>
requires std::same_as<std::remove_const_t<Part>, Contract>
void for_each_field(Part& contract, Visit visit) {
  visit("structure", contract.structure);
  visit("attributes", contract.attributes);
  visit("used", contract.used);
  visit("state", contract.state);
  visit("grad", contract.grad);
  visit("writes", contract.writes);
  visit("functions", contract.functions);
  visit("expected_cotangents", contract.expected_cotangents);
  visit("shapes", contract.shapes);
  visit("output_layouts", contract.output_layouts);
  visit("gradient_layouts", contract.gradient_layouts);
  visit("gradient_order", contract.gradient_order);
  visit("saved_groups", contract.saved_groups);
  visit("inner_results", contract.inner_results);
  visit("silent_writes", contract.silent_writes);
  visit("saved_writes", contract.saved_writes);
  visit("saved_tensors", contract.saved_tensors);
  visit("saved_as_given", contract.saved_as_given);
  visit("saved_both_ways", contract.saved_both_ways);
  visit("saved_constants", contract.saved_constants);
  visit("data_guards", contract.data_guards);
  visit("sized_by_data", contract.sized_by_data);
  visit("draws", contract.draws);
}

template <typename Part, typename Visit>
requires std::same_as<std::remove_const_t<Part>, CallSizes>
void for_each_field(Part& sizes, Visit visit) {
  visit("sizes", sizes.sizes);
  visit("guards", sizes.guards);
  visit("numbers", sizes.numbers);
  visit("fixed", sizes.fixed);
}

template <typename Part, typename Visit>
requires std::same_as<std::remove_const_t<Part>, FunctionCall>
void for_each_field(Part& call, Visit visit) {
  visit("function", call.function);
  visit("arguments", call.arguments);
  visit("tensors", call.tensors);
  visit("results", call.results);
  visit("others", call.others);
  visit("dirty", call.dirty);
  visit("sizes", call.sizes);
}

}  // namespace rekindle::contract
