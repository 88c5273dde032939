#include "src/passes/pass_manager.h"

#include <string>

#include "src/base/log.h"
#include "src/graph/verify.h"

namespace rekindle::passes {
namespace {

#ifdef REKINDLE_DEV
constexpr bool kVerifyAfterEach = true;
#else
constexpr bool kVerifyAfterEach = false;
#endif

Result<bool> run_pass(const PassInfo& pass, graph::Graph& graph, const PassContext& context) {
  const std::size_t before = graph.nodes().size();
  REKINDLE_ASSIGN_OR_RETURN(const bool changed, pass.run(graph, context));
  log_debug("pass " + std::string(pass.name) + ": " + std::to_string(before) + " -> " +
            std::to_string(graph.nodes().size()) + " nodes" + (changed ? "" : ", nothing changed"));
  if (kVerifyAfterEach) {
    if (Status status = graph::verify(graph); !status.ok()) {
      return internal_error("pass " + std::string(pass.name) + " broke the graph: " + status.error().message);
    }
  }
  return changed;
}

}  // namespace

Registry<PassInfo>& all_passes() {
  // Made on first use: registrars of other files run before main() in any order.
  static Registry<PassInfo> registry;
  return registry;
}

Result<bool> run_passes(graph::Graph& graph, std::span<const std::string_view> names,
                        const PassContext& context) {
  std::vector<const PassInfo*> found;
  for (std::string_view name : names) {
    found.push_back(all_passes().find(name));
    if (found.back() == nullptr) return not_found("there is no pass named '" + std::string(name) + "'");
  }
  bool changed = false;
  for (const PassInfo* pass : found) {
    REKINDLE_ASSIGN_OR_RETURN(const bool this_changed, run_pass(*pass, graph, context));
    changed |= this_changed;
  }
  return changed;
}

Result<bool> run_passes_until_stable(graph::Graph& graph, std::span<const std::string_view> names,
                                     const PassContext& context, int max_rounds) {
  bool changed = false;
  for (int round = 0; round < max_rounds; ++round) {
    REKINDLE_ASSIGN_OR_RETURN(const bool this_changed, run_passes(graph, names, context));
    if (!this_changed) break;
    changed = true;
  }
  return changed;
}

}  // namespace rekindle::passes
