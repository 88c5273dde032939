// Deferred: a node that is lowered each time it runs, because sizes of its inputs, or of its results, depend
// on data. Internal to the session room.
#pragma once

#include <vector>

#include "session/lower/run_lowering.h"

namespace rekindle::session {

// The kernel is run(): inputs as the node's, results in tensors of their own
// or, for views, in their input's memory. A gradient that is absent is a meta
// tensor with its layout, or undefined where that is not known.
struct Deferred {
  const graph::Node* node = nullptr;
  Lower lower = nullptr;
  bool recording = false;
  at::Device device = at::kCPU;  // where it runs
  // Per input: its layout, where only that is read and it is known beforehand; else undefined.
  std::vector<at::Tensor> metas;
  // Per input: its contents on the host, where they are known beforehand; else undefined.
  std::vector<at::Tensor> constants;
  // Per output: whether it is a result of the graph, which must not share memory.
  std::vector<bool> delivered;
  // Outputs whose layout leaves as a meta tensor, after the node's outputs, in this order.
  std::vector<std::size_t> sized;

  // Throws c10::Error, as the lowering and its kernel do.
  void run(const Args& args) const;

 private:
  // `inputs`: as the node's, absent gradients undefined.
  NodeResults results_of(const Args& args, const std::vector<at::Tensor>& inputs) const;
};

// Whether absent inputs of a deferred node may stay undefined: it is a sum of
// what is there, or a recorded derivative.
bool takes_absent_deferred(const graph::Node& node);

}  // namespace rekindle::session
