// Runs passes by name.
#pragma once

#include <span>
#include <string_view>

#include "src/passes/pass.h"

namespace rekindle::passes {

// Runs the passes in the order given; true when one changed the graph. kNotFound, before
// anything runs, for an unknown name. Development builds verify the graph after each pass:
// kInternal then names the pass that broke it.
Result<bool> run_passes(graph::Graph& graph, std::span<const std::string_view> names,
                        const PassContext& context = {});

// Repeats run_passes until nothing changes, at most `max_rounds` times.
Result<bool> run_passes_until_stable(graph::Graph& graph, std::span<const std::string_view> names,
                                     const PassContext& context = {}, int max_rounds = 8);

}  // namespace rekindle::passes
