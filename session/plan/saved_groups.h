// Which backwards of one forward exclude each other.
//
// Eager's autograd graph decides. A backward runs the nodes that lie between the cotangents it is given and
// the gradients it is asked for. Unless it retains the graph, it frees what these have saved, and a further
// backward that meets one of them is an error; one that meets none is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "session/session.h"
#include "src/autodiff/gradient.h"

namespace rekindle::session {

// The cotangents that a backward is given and the gradients that it is for, by place in the joint graph's
// cotangent_of and gradient_of.
struct BackwardPart {
  std::vector<bool> present, gradients;

  bool empty() const { return std::ranges::find(present, true) == present.end(); }
  bool operator==(const BackwardPart&) const = default;
  bool operator<(const BackwardPart& other) const {
    return std::tie(present, gradients) < std::tie(other.present, other.gradients);
  }
};

// The groups of one session. Thread-safe.
class SavedGroups {
 public:
  using Flags = std::vector<bool>;

  // Without `groups`, every backward excludes every other. The joint graph has to outlive this.
  SavedGroups(const autodiff::JointGraph& joint, const std::optional<std::vector<SavedGroup>>& groups);

  // Nothing is freed yet: one flag a group.
  Flags none_freed() const { return Flags(groups_.size(), false); }
  // Whether a backward with the cotangents `present` for the gradients `wanted` meets what was freed.
  bool meets(const Flags& freed, const Flags& present, const Flags& wanted) const;
  // Whether a freed group lies between a result and `others`.
  bool meets_before(const Flags& freed, std::size_t result, const std::vector<std::size_t>& others) const;
  // Adds what such a backward frees.
  void free(Flags& freed, const Flags& present, const Flags& wanted) const;
  // The cotangents that a further backward may be given, and the gradients that it may be asked for.
  BackwardPart left(const Flags& freed) const;
  // The gradients that a backward with just these cotangents may be asked for.
  Flags open(const Flags& freed, const Flags& present) const;
  // Which cotangents lead to which gradients.
  struct Leads {
    std::vector<Flags> from;               // distinct sets of cotangents
    std::vector<std::size_t> to_gradient;  // per gradient: the set, by its place in `from`
  };
  // Takes a gradient that no cotangent changes, as it was found to be a constant, for one to which all lead.
  const Leads& leads() const;
  // Returns whether such a backward runs nodes of `group`.
  bool runs(const SavedGroup& group, const Flags& present, const Flags& wanted) const;

 private:
  struct Group {
    Flags cotangents, gradients;
    bool all = false;  // every one of both
  };
  Group flags_of(const SavedGroup& given) const;
  static bool runs(const Group& group, const Flags& present, const Flags& wanted);
  const std::vector<Flags>& reached() const;
  bool is_freed(const Flags& freed, std::size_t cotangent, std::size_t gradient) const;

  const autodiff::JointGraph& joint_;
  std::vector<Group> groups_;
  mutable std::once_flag searched_;
  mutable std::vector<Flags> reached_;  // per cotangent: the gradients that depend on it
  mutable Leads leads_;                 // the same the other way round
};

}  // namespace rekindle::session
