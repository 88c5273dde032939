// Contracts: what parses prints and parses to the same, and can be held against any graph.
#include "src/contract/contract.h"

#include "tests/fuzz/fuzz.h"

using namespace rekindle;

namespace {

// The smallest graph and call that a contract may be about.
contract::GraphFacts fitting(const contract::Contract& contract) {
  const auto& needs = contract.structure.needs();
  const std::size_t others = contract.writes.size() + (contract.data_guards.empty() ? 0 : 1);
  return {.inputs = contract.used.size(),
          .outputs = needs.outputs + contract.output_layouts.size() + others,
          .cotangents = contract.inner_results.size(),
          .arguments = contract.shapes.sizes.size(),
          .state = contract.state};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = contract::parse(fuzz::view(data, size));
  if (!parsed.ok()) return 0;
  const std::string text = contract::print(*parsed);
  const auto again = contract::parse(text);
  if (!again.ok()) fuzz::require_equal(text, again.error().message, "a printed contract parses");
  fuzz::require_equal(contract::print(*again), text, "printing and parsing keep a contract");
  const auto facts = fitting(*parsed);
  const bool fits = contract::check_fit(*parsed, facts).ok();
  fuzz::require(fits == contract::check_fit(*again, facts).ok(), "equal contracts fit the same graphs");
  if (!fits) return 0;
  const auto& needs = parsed->structure.needs();
  fuzz::require(needs.inputs <= facts.arguments + facts.state.size(),
                "a result is made of inputs that there are");
  fuzz::require(needs.numbers <= parsed->shapes.numbers.size(), "a result is made of numbers that there are");
  return 0;
}
