#include "session/padding/padding_elimination.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "session/padding/packed_joint.h"
#include "src/base/log.h"

namespace rekindle::session {
namespace {

// A call of fewer tokens takes no time worth saving.
constexpr std::int64_t kLeastTokens = 64;

// Where more of the rows are needed than this, taking them out costs more than it saves.
constexpr double kDense = 0.9;

double share_of(std::int64_t rows, std::int64_t all) {
  return static_cast<double>(rows) / static_cast<double>(all);
}

thread_local int all_rows = 0;  // nested AllRows

// As the session of the whole graph has them: numbers of tensors behind the inputs move.
SessionOptions options_for(const SessionOptions& options, std::size_t forward_inputs,
                           std::size_t row_inputs) {
  SessionOptions packed = options;
  packed.padding_elimination = false;
  for (SavedTensor& saved : packed.saved_tensors) {
    if (saved.tensor >= forward_inputs) saved.tensor += row_inputs;
  }
  return packed;
}

Result<std::shared_ptr<Session>> question_session(std::unique_ptr<graph::Graph> graph) {
  autodiff::JointGraph joint;
  joint.forward_inputs = graph->inputs().size();
  joint.forward_outputs = graph->outputs().size();
  joint.graph = std::move(graph);
  return Session::create(std::move(joint));
}

}  // namespace

void AllRows::enter() { ++all_rows; }
void AllRows::leave() { --all_rows; }

PaddingElimination::Made PaddingElimination::make(std::span<const at::Tensor> inputs) const {
  Made made;
  auto packed = packed_joint(joint_, options_.written_results, inputs);
  if (!packed.ok()) return {.why_not = packed.error().message};
  std::size_t results = 0;
  for (padding::PackedGraph& each : packed->packings) {
    auto questions = question_session(std::move(each.question_graph));
    if (!questions.ok()) return {.why_not = questions.error().message};
    made.packings.push_back({*std::move(questions), std::move(each.questions), each.tokens});
    results += each.row_results;
    if (!each.needs_all.empty()) log_debug("padding_elimination: all rows are needed by " + each.needs_all);
  }
  auto session = Session::create(
      std::move(packed->joint),
      options_for(options_, joint_.forward_inputs, padding::kRowInputs * made.packings.size()));
  if (!session.ok()) return {.why_not = session.error().message};
  made.packed = *std::move(session);
  if (results > 0)
    log_info("padding_elimination: results with a row for each token (" + std::to_string(results) +
             ") are zero in the rows that the loss does not read");
  return made;
}

std::shared_ptr<const PaddingElimination::Made> PaddingElimination::made(
    std::span<const at::Tensor> inputs, const std::function<void(Session&)>& prepare) {
  {
    const std::lock_guard lock(mutex_);
    if (made_ != nullptr) return made_;
  }
  if (!tells_rows(joint_, inputs)) return std::make_shared<Made>(Made{.why_not = "short sequences"});
  auto fresh = std::make_shared<Made>(make(inputs));
  if (!fresh->why_not.empty()) {
    log_info("padding_elimination leaves no row out: " + fresh->why_not);
  } else {
    for (const auto& session : sessions_of(*fresh)) prepare(*session);
  }
  const std::lock_guard lock(mutex_);
  if (made_ == nullptr) made_ = std::move(fresh);
  return made_;
}

std::optional<PaddingElimination::Choice> PaddingElimination::choose(
    std::span<const at::Tensor> inputs, const std::function<void(Session&)>& prepare) {
  if (all_rows > 0) return std::nullopt;
  const auto ready = made(inputs, prepare);
  if (!ready->why_not.empty()) return std::nullopt;
  const at::Tensor& tokens = inputs[ready->packings[0].tokens];
  if (tokens.numel() == 0 || tokens.size(0) * tokens.size(1) < kLeastTokens) return std::nullopt;
  try {
    return packed_call(*ready, inputs);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {  // at these sizes, or of this data: the whole graph says what is wrong
    log_debug(std::string("padding_elimination leaves no row out of this call: ") +
              error.what_without_backtrace());
    return std::nullopt;
  }
}

std::optional<PaddingElimination::Choice> PaddingElimination::packed_call(
    const Made& ready, std::span<const at::Tensor> inputs) {
  Choice choice{ready.packed, {inputs.begin(), inputs.end()}};
  std::int64_t all = 0, needed = 0, counts = 0;
  bool packs = false;
  for (const Packing& packing : ready.packings) {
    const std::int64_t batch = inputs[packing.tokens].size(0), length = inputs[packing.tokens].size(1);
    const NeededRows rows = find_needed_rows(
        packing.asked, packing.questions->forward(choice.inputs, /*record=*/false), batch, length);
    for (at::Tensor& input : rows.inputs()) choice.inputs.push_back(std::move(input));
    all += batch * length;
    needed += rows.needed;
    counts += rows.counts;
    packs = packs || share_of(std::min(rows.needed, rows.counts), batch * length) <= kDense;
  }
  if (packs) ready.packed->prepare(choice.inputs, /*record=*/true);
  log_debug("padding_elimination: " + std::to_string(needed) + " of " + std::to_string(all) +
            " rows are needed, " + std::to_string(counts) + " by the loss" +
            (packs ? "" : "; the call runs whole"));
  const std::lock_guard lock(mutex_);
  ++stats_.calls;
  stats_.packed_calls += packs ? 1 : 0;
  stats_.density = share_of(needed, all);
  stats_.counted_density = share_of(counts, all);
  return packs ? std::optional(std::move(choice)) : std::nullopt;
}

std::vector<std::shared_ptr<Session>> PaddingElimination::sessions_of(const Made& made) {
  std::vector<std::shared_ptr<Session>> sessions;
  if (!made.why_not.empty()) return sessions;
  for (const Packing& packing : made.packings) sessions.push_back(packing.questions);
  sessions.push_back(made.packed);
  return sessions;
}

std::vector<std::shared_ptr<Session>> PaddingElimination::sessions() const {
  const std::lock_guard lock(mutex_);
  return made_ == nullptr ? std::vector<std::shared_ptr<Session>>() : sessions_of(*made_);
}

PaddingStats PaddingElimination::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace rekindle::session
