// Model: an ONNX graph made ready to run, without gradients. Planned when the sizes of all values
// follow from those of the inputs, interpreted when they depend on data, or values are no tensors.
// Safe to run from several threads.
#pragma once

#include <memory>
#include <string>

#include "session/run/interpreter.h"
#include "session/session.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace rekindle::session {

class Model {
 public:
  // kUnsupported, naming node and op, when an op of the graph, or of a graph inside it, cannot be run.
  static Result<std::shared_ptr<Model>> create(std::unique_ptr<graph::Graph> graph);

  // One value per output, in memory of its own. Throws c10::Error naming the node, its op and its source.
  RunValues run(const RunValues& inputs);

  const graph::Graph& graph() const { return *graph_; }
  // Why the last run was interpreted; empty when it had a plan.
  std::string why_interpreted() const;

 private:
  RunValues run_planned(const RunValues& inputs);

  std::shared_ptr<const graph::Graph> graph_;
  std::shared_ptr<Session> session_;  // null when some op has no lowering
  mutable Mutex mutex_;
  std::string why_interpreted_;  // guarded by mutex_
};

}  // namespace rekindle::session
