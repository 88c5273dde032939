// Checks of one pass: text in, text out.
#pragma once

#include <string>
#include <string_view>

#include "src/passes/pass_manager.h"
#include "tests/support/graph_text.h"

namespace rekindle::testing {

inline bool run_pass(graph::Graph& graph, std::string_view name, const passes::PassContext& context = {}) {
  const auto changed = passes::run_passes(graph, std::span(&name, 1), context);
  if (!changed.ok()) FAIL(changed.error().message);
  if (const Status status = graph::verify(graph); !status.ok()) FAIL(status.error().message);
  return *changed;
}

// Runs the pass on `before`, expects `after`, and expects a second run to change nothing. The result of the
// run and the text must agree on whether anything changed.
inline void check_pass(std::string_view name, std::string_view before, std::string_view after,
                       const passes::PassContext& context = {}) {
  const auto graph = graph_from(before);
  const std::string start = graph::print(*graph);
  const bool changed = run_pass(*graph, name, context);
  const std::string once = graph::print(*graph);
  CHECK(once == graph::print(*graph_from(after)));
  CHECK(changed == (once != start));
  CHECK_FALSE(run_pass(*graph, name, context));
  CHECK(graph::print(*graph) == once);
}

inline void check_unchanged(std::string_view name, std::string_view text,
                            const passes::PassContext& context = {}) {
  check_pass(name, text, text, context);
}

}  // namespace rekindle::testing
