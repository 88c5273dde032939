// PaddingElimination: a second session of a graph, which computes only the rows of tokens that a call needs.
//
// It is made at the first call that could use it, from the graph as it is: entries of the cache are the same
// with and without. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/padding/needed_rows.h"
#include "session/session.h"
#include "src/base/mutex.h"

namespace rekindle::session {

// From enter() to leave(), forwards of this thread compute all rows: a comparison with eager reads them.
class AllRows {
 public:
  static void enter();
  static void leave();
};

class PaddingElimination {
 public:
  // `joint` has to outlive this. `options`: of the session whose graph it is, here and below.
  PaddingElimination(const autodiff::JointGraph& joint, SessionOptions options)
      : joint_(joint), options_(std::move(options)) {}

  // Names the session that runs a call with fewer rows, and the inputs that this session takes.
  struct Choice {
    std::shared_ptr<Session> session;
    std::vector<at::Tensor> inputs;
  };
  // nullopt where the graph as it is serves the call better, or nobody knows which rows it needs. `prepare`
  // is called with each session that is made.
  std::optional<Choice> choose(std::span<const at::Tensor> inputs,
                               const std::function<void(Session&)>& prepare);
  // Returns the sessions that have been made so far, so that their owner can hand on what it is given.
  std::vector<std::shared_ptr<Session>> sessions() const;
  PaddingStats stats() const;

 private:
  // Leaves rows of tokens of one kind out.
  struct Packing {
    std::shared_ptr<Session> questions;
    padding::RowQuestions asked;
    std::size_t tokens = 0;  // an input that has their batch and length
  };
  struct Made {
    std::string why_not = {};  // empty: it is there
    std::vector<Packing> packings = {};
    std::shared_ptr<Session> packed = {};
  };
  std::shared_ptr<const Made> made(std::span<const at::Tensor> inputs,
                                   const std::function<void(Session&)>& prepare);
  static std::vector<std::shared_ptr<Session>> sessions_of(const Made& made);
  Made make(std::span<const at::Tensor> inputs) const;
  std::optional<Choice> packed_call(const Made& ready, std::span<const at::Tensor> inputs);

  const autodiff::JointGraph& joint_;
  const SessionOptions options_;
  mutable Mutex mutex_;  // guards what is below
  std::shared_ptr<const Made> made_;
  PaddingStats stats_;
};

}  // namespace rekindle::session
