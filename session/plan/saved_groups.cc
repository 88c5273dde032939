#include "session/plan/saved_groups.h"

#include <algorithm>
#include <unordered_set>

namespace rekindle::session {
namespace {

using Flags = SavedGroups::Flags;

bool any_of_both(const Flags& a, const Flags& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

bool all_of(const Flags& flags) {
  return std::ranges::all_of(flags, [](bool flag) { return flag; });
}

// Everything that depends on `value`.
std::unordered_set<const graph::Value*> descendants(const graph::Value* value) {
  std::unordered_set<const graph::Value*> found = {value};
  std::vector<const graph::Value*> open = {value};
  while (!open.empty()) {
    const graph::Value* next = open.back();
    open.pop_back();
    for (const graph::Use& use : next->uses()) {
      for (const graph::Value* output : use.node->outputs()) {
        if (found.insert(output).second) open.push_back(output);
      }
    }
  }
  return found;
}

}  // namespace

SavedGroups::SavedGroups(const autodiff::JointGraph& joint,
                         const std::optional<std::vector<SavedGroup>>& groups)
    : joint_(joint) {
  const std::size_t cotangents = joint.cotangent_of.size(), gradients = joint.gradient_of.size();
  if (!groups) {
    groups_.push_back({Flags(cotangents, true), Flags(gradients, true), true});
    return;
  }
  for (const SavedGroup& given : *groups) groups_.push_back(flags_of(given));
}

SavedGroups::Group SavedGroups::flags_of(const SavedGroup& given) const {
  const std::size_t cotangents = joint_.cotangent_of.size(), gradients = joint_.gradient_of.size();
  Group group{Flags(cotangents, false), Flags(gradients, false), false};
  for (const std::size_t i : given.cotangents) {
    if (i < cotangents) group.cotangents[i] = true;
  }
  for (std::size_t i = 0; i < gradients; ++i) {
    group.gradients[i] = std::ranges::find(given.inputs, joint_.gradient_of[i]) != given.inputs.end();
  }
  group.all = all_of(group.cotangents) && all_of(group.gradients);
  return group;
}

bool SavedGroups::runs(const Group& group, const Flags& present, const Flags& wanted) {
  return any_of_both(group.cotangents, present) && any_of_both(group.gradients, wanted);
}

bool SavedGroups::runs(const SavedGroup& group, const Flags& present, const Flags& wanted) const {
  return runs(flags_of(group), present, wanted);
}

bool SavedGroups::meets_before(const Flags& freed, std::size_t result,
                               const std::vector<std::size_t>& others) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const auto leads_to_it = [&](std::size_t other) { return group.cotangents[other]; };
    if (freed[i] && group.cotangents[result] && (group.all || std::ranges::none_of(others, leads_to_it)))
      return true;
  }
  return false;
}

bool SavedGroups::meets(const Flags& freed, const Flags& present, const Flags& wanted) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (freed[i] && runs(groups_[i], present, wanted)) return true;
  }
  return false;
}

void SavedGroups::free(Flags& freed, const Flags& present, const Flags& wanted) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (runs(groups_[i], present, wanted)) freed[i] = true;
  }
}

BackwardPart SavedGroups::left(const Flags& freed) const {
  BackwardPart left{Flags(joint_.cotangent_of.size(), false), Flags(joint_.gradient_of.size(), false)};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (freed[i] && groups_[i].all) return left;
  }
  for (std::size_t cotangent = 0; cotangent < left.present.size(); ++cotangent) {
    for (std::size_t place = 0; place < left.gradients.size(); ++place) {
      if (!reached()[cotangent][place] || is_freed(freed, cotangent, place)) continue;
      left.present[cotangent] = left.gradients[place] = true;
    }
  }
  return left;
}

SavedGroups::Flags SavedGroups::open(const Flags& freed, const Flags& present) const {
  Flags open(joint_.gradient_of.size(), true);
  for (std::size_t place = 0; place < open.size(); ++place) {
    for (std::size_t cotangent = 0; cotangent < present.size(); ++cotangent) {
      if (present[cotangent] && reached()[cotangent][place] && is_freed(freed, cotangent, place))
        open[place] = false;
    }
  }
  return open;
}

bool SavedGroups::is_freed(const Flags& freed, std::size_t cotangent, std::size_t gradient) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (freed[i] && groups_[i].cotangents[cotangent] && groups_[i].gradients[gradient]) return true;
  }
  return false;
}

const SavedGroups::Leads& SavedGroups::leads() const {
  reached();
  return leads_;
}

const std::vector<Flags>& SavedGroups::reached() const {
  std::call_once(searched_, [this] {
    const auto& inputs = joint_.graph->inputs();
    const auto& outputs = joint_.graph->outputs();
    for (std::size_t i = 0; i < joint_.cotangent_of.size(); ++i) {
      const auto found = descendants(inputs[joint_.forward_inputs + i]);
      Flags flags;
      for (std::size_t place = 0; place < joint_.gradient_of.size(); ++place)
        flags.push_back(found.contains(outputs[joint_.forward_outputs + place]));
      reached_.push_back(std::move(flags));
    }
    for (std::size_t place = 0; place < joint_.gradient_of.size(); ++place) {
      Flags flags;
      for (const Flags& reached : reached_) flags.push_back(reached[place]);
      if (std::ranges::find(flags, true) == flags.end()) flags.flip();
      const auto known = std::ranges::find(leads_.from, flags);
      leads_.to_gradient.push_back(static_cast<std::size_t>(known - leads_.from.begin()));
      if (known == leads_.from.end()) leads_.from.push_back(std::move(flags));
    }
  });
  return reached_;
}

}  // namespace rekindle::session
