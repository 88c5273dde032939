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

thread_local int all_rows = 0;  // nested AllRows

// As the session of the whole graph has them: numbers of tensors behind the inputs move.
SessionOptions options_for(const SessionOptions& options, std::size_t forward_inputs) {
  SessionOptions packed = options;
  packed.padding_elimination = false;
  for (SavedTensor& saved : packed.saved_tensors) {
    if (saved.tensor >= forward_inputs) saved.tensor += kRowInputs;
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
  auto packed = packed_joint(joint_, inputs);
  if (!packed.ok()) return {.why_not = packed.error().message};
  made.asked = std::move(packed->packed.questions);
  made.tokens = packed->packed.tokens;
  auto questions = question_session(std::move(packed->packed.question_graph));
  if (!questions.ok()) return {.why_not = questions.error().message};
  made.questions = *std::move(questions);
  auto session = Session::create(std::move(packed->joint), options_for(options_, joint_.forward_inputs));
  if (!session.ok()) return {.why_not = session.error().message};
  made.packed = *std::move(session);
  if (const std::string& node = packed->packed.needs_all; !node.empty())
    log_debug("padding_elimination: all rows are needed by " + node);
  if (packed->packed.row_results > 0)
    log_info("padding_elimination: results with a row for each token (" +
             std::to_string(packed->packed.row_results) +
             ") are zero in the rows that the loss does not read");
  return made;
}

std::shared_ptr<const PaddingElimination::Made> PaddingElimination::made(
    std::span<const at::Tensor> inputs, const std::function<void(Session&)>& prepare) {
  {
    const std::lock_guard lock(mutex_);
    if (made_ != nullptr) return made_;
  }
  auto fresh = std::make_shared<Made>(make(inputs));
  if (!fresh->why_not.empty()) {
    log_info("padding_elimination leaves no row out: " + fresh->why_not);
  } else {
    for (const auto& session : {fresh->questions, fresh->packed}) prepare(*session);
  }
  const std::lock_guard lock(mutex_);
  if (made_ == nullptr) made_ = std::move(fresh);
  stats_.why_not = made_->why_not;
  return made_;
}

std::optional<PaddingElimination::Choice> PaddingElimination::choose(
    std::span<const at::Tensor> inputs, const std::function<void(Session&)>& prepare) {
  if (all_rows > 0) return std::nullopt;
  const auto ready = made(inputs, prepare);
  if (!ready->why_not.empty()) return std::nullopt;
  const at::Tensor& tokens = inputs[ready->tokens];
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
  const std::int64_t batch = inputs[ready.tokens].size(0), length = inputs[ready.tokens].size(1);
  const NeededRows needed =
      find_needed_rows(ready.asked, ready.questions->forward(inputs, /*record=*/false), batch, length);
  const double all = static_cast<double>(batch * length);
  const double density = static_cast<double>(needed.needed) / all,
               counted = static_cast<double>(needed.counts) / all;
  const bool packs = std::min(density, counted) <= kDense;
  std::optional<Choice> choice;
  if (packs) {
    choice = {ready.packed, {inputs.begin(), inputs.end()}};
    choice->inputs.insert(choice->inputs.end(), {needed.rows, needed.counted, needed.counted_among_rows});
    ready.packed->prepare(choice->inputs, /*record=*/true);
  }
  log_debug("padding_elimination: " + std::to_string(needed.needed) + " of " +
            std::to_string(batch * length) + " rows are needed, " + std::to_string(needed.counts) +
            " by the loss" + (packs ? "" : "; the call runs whole"));
  const std::lock_guard lock(mutex_);
  ++stats_.calls;
  stats_.packed_calls += packs ? 1 : 0;
  stats_.density = density;
  stats_.counted_density = counted;
  return choice;
}

std::vector<std::shared_ptr<Session>> PaddingElimination::sessions() const {
  const std::lock_guard lock(mutex_);
  if (made_ == nullptr || !made_->why_not.empty()) return {};
  return {made_->questions, made_->packed};
}

PaddingStats PaddingElimination::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace rekindle::session
