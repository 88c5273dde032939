#include <algorithm>
#include <unordered_set>

#include "src/contract/contract.h"

namespace rekindle::contract {

namespace {

bool all_below(const Positions& positions, std::size_t count) {
  return std::all_of(positions.begin(), positions.end(),
                     [&](std::size_t position) { return position < count; });
}

bool is_state_of(const std::vector<std::string>& names, const std::vector<std::string>& module) {
  const std::unordered_set<std::string_view> known(module.begin(), module.end());
  return std::all_of(names.begin(), names.end(), [&](const auto& name) { return known.contains(name); });
}

// Of groups, or of saved tensors.
template <typename Record>
bool all_between(const std::vector<Record>& records, const GraphFacts& facts) {
  return std::all_of(records.begin(), records.end(), [&](const Record& record) {
    return all_below(record.results, facts.cotangents) && all_below(record.inputs, facts.inputs);
  });
}

bool tensors_fit(const Contract& contract, std::size_t results, const GraphFacts& facts) {
  const std::size_t constants = facts.inputs + facts.outputs;
  const auto fits = [&](const SavedTensor& one) {
    return one.tensor < facts.inputs + results ||
           (one.tensor >= constants && one.tensor - constants < contract.saved_constants.size());
  };
  return all_between(contract.saved_tensors, facts) &&
         std::all_of(contract.saved_tensors.begin(), contract.saved_tensors.end(), fits);
}

bool writes_fit(const Contract& contract, const GraphFacts& facts) {
  return all_between(contract.saved_writes, facts) &&
         std::all_of(contract.saved_writes.begin(), contract.saved_writes.end(),
                     [&](const SavedTensor& one) { return one.tensor < contract.writes.size(); });
}

// Whether what lies on the way of a result's ways is on its way, too; and nothing on its own.
bool inner_fits(std::vector<Positions> inner, std::size_t cotangents) {
  if (!inner.empty() && inner.size() != cotangents) return false;
  for (Positions& others : inner) {
    if (!all_below(others, cotangents)) return false;
    std::sort(others.begin(), others.end());
  }
  return std::all_of(inner.begin(), inner.end(), [&](const Positions& others) {
    return std::all_of(others.begin(), others.end(), [&](std::size_t other) {
      const Positions& part = inner[other];
      return part.size() < others.size() &&
             std::includes(others.begin(), others.end(), part.begin(), part.end());
    });
  });
}

// Whether a result that stands for n attributes, too, has a part for each.
bool has_parts(const Structure& structure, std::size_t attributes) {
  if (attributes == 0) return true;
  const Json& described = structure.described();
  const auto viewed = described.find("with_views");
  const Json* items = only(viewed == described.end() ? described : described["result"], "tuple");
  return items != nullptr && items->size() == attributes + 1;
}

}  // namespace

Status check_fit(const Contract& contract, const GraphFacts& facts) {
  const std::size_t inputs = facts.arguments + contract.state.size();
  const std::size_t others = contract.writes.size() + (contract.data_guards.empty() ? 0 : 1);
  if (others > facts.outputs) return corruption("the contract's writes does not fit its graph");
  const std::size_t results = facts.outputs - others;
  const Structure::Needs& needs = contract.structure.needs();
  const std::pair<const char*, bool> fields[] = {
      {"state", is_state_of(contract.state, facts.state)},
      {"used", contract.used.size() == facts.inputs && all_below(contract.used, inputs)},
      {"writes", all_below(contract.writes, inputs)},
      {"output_layouts", contract.output_layouts.size() <= results},
      {"gradient_layouts", contract.gradient_layouts.size() <= facts.inputs},
      {"gradient_order", all_below(contract.gradient_order, facts.inputs)},
      {"inner_results", inner_fits(contract.inner_results, facts.cotangents)},
      {"silent_writes", all_below(contract.silent_writes, contract.writes.size())},
      {"saved_writes", writes_fit(contract, facts)},
      {"saved_tensors", tensors_fit(contract, results, facts)},
      {"saved_as_given", all_below(contract.saved_as_given, facts.inputs)},
      {"saved_both_ways", all_below(contract.saved_both_ways, facts.inputs)},
      {"saved_groups", !contract.saved_groups || all_between(*contract.saved_groups, facts)},
      {"shapes", contract.shapes.sizes.size() == facts.arguments},
      {"attributes", has_parts(contract.structure, contract.attributes.size())},
      {"structure",
       needs.outputs <= results && needs.inputs <= inputs && needs.numbers <= contract.shapes.numbers.size()},
  };
  for (const auto& [name, fits] : fields) {
    if (!fits) return corruption(std::string("the contract's ") + name + " does not fit its graph");
  }
  return {};
}

}  // namespace rekindle::contract
