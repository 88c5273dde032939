// A pass: one numerically neutral step from a graph to a better one.
//
// A pass keeps every graph input and output, with its name and place, and leaves a graph that verifies. It
// registers itself beside its own code; docs/howto/add-a-pass.md shows one.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "src/base/concat.h"
#include "src/base/registry.h"
#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::passes {

// Computes the outputs of a node all of whose inputs are constants, one
// per output. kUnsupported when it cannot.
using ConstantEvaluator = std::function<Result<std::vector<graph::ConstantPtr>>(const graph::Node&)>;

// What passes may use besides the graph.
struct PassContext {
  // Empty: only what passes can compute themselves is folded.
  ConstantEvaluator evaluate = {};
  // A constant of more bytes is not made: computing it again each run is cheaper than storing and loading it.
  std::int64_t max_folded_bytes = 256 * 1024;
  // Casts to floating-point types are not merged: gradients of the casts of one value are added in the
  // value's dtype, those of one cast in the cast's. Ten heads under autocast lose three bits by that.
  bool keeps_casts_apart = false;
};

struct PassInfo {
  std::string_view name, doc;  // doc: one line, for listings
  // Whether the graph changed. An error leaves the graph unspecified but destructible.
  Result<bool> (*run)(graph::Graph& graph, const PassContext& context);
};

// By name.
Registry<PassInfo>& all_passes();

struct PassRegistrar {
  explicit PassRegistrar(const PassInfo& info) { all_passes().add(std::string(info.name), info); }
};

// REKINDLE_PASS("eliminate_dead_nodes", "Removes ...", run) at namespace scope, beside the pass.
#define REKINDLE_PASS(name, doc, run) \
  const ::rekindle::passes::PassRegistrar REKINDLE_CONCAT(rekindle_pass_, __COUNTER__)({name, doc, run})

}  // namespace rekindle::passes
