#include "session/plan/fused_again.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace rekindle::session {
namespace {

class Search {
 public:
  explicit Search(const Programs& programs)
      : programs_(programs), parent_(programs.forward.instructions.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    const auto& instructions = programs.forward.instructions;
    for (std::size_t at = 0; at < instructions.size(); ++at) {
      for (const SlotId slot : instructions[at].outputs) maker_[slot] = at;
    }
    for (std::size_t at = 0; at < instructions.size(); ++at) {
      for (const SlotId slot : instructions[at].inputs) {
        const std::size_t from = maker_of(programs.root_of(slot));
        if (is_pointwise(at) && is_pointwise(from) && is_alike(at, from))
          parent_[chain_of(at)] = chain_of(from);
      }
    }
    for (const Instruction& instruction : programs.backward.instructions) {
      for (const SlotId slot : instruction.inputs) {
        read_.insert(programs.root_of(slot));
        if (instruction.pointwise.empty()) read_by_others_.insert(programs.root_of(slot));
      }
    }
    for (const SlotId slot : programs.forward.outputs) read_by_others_.insert(programs.root_of(slot));
  }

  std::vector<std::uint32_t> run() {
    std::unordered_map<std::size_t, std::vector<SlotId>> saved;  // by chain
    for (const auto& [root, at] : maker_) {
      if (is_pointwise(at) && read_.contains(root) && !read_by_others_.contains(root))
        saved[chain_of(at)].push_back(root);
    }
    std::vector<std::uint32_t> again;
    for (const auto& [chain, roots] : saved) {
      Again made = made_again(roots);
      if (made.left < made.freed) again.insert(again.end(), made.values.begin(), made.values.end());
    }
    std::ranges::sort(again);
    return again;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Again {
    std::vector<SlotId> values;
    std::size_t freed = 0, left = 0;  // bytes
  };

  std::size_t maker_of(SlotId root) const {
    const auto found = maker_.find(root);
    return found == maker_.end() ? kNone : found->second;
  }
  bool is_pointwise(std::size_t at) const {
    return at != kNone && !programs_.forward.instructions[at].pointwise.empty();
  }
  std::int64_t elements(std::size_t at) const {
    return programs_.slots[programs_.forward.instructions[at].outputs[0]].meta.numel();
  }
  bool is_alike(std::size_t a, std::size_t b) const { return elements(a) == elements(b); }
  std::size_t chain_of(std::size_t at) const {
    while (parent_[at] != at) at = parent_[at];
    return at;
  }

  // What it takes to make these again: up to what the backward reads anyway, or what is no part of the chain.
  Again made_again(const std::vector<SlotId>& roots) const {
    Again made;
    std::unordered_set<SlotId> seen(roots.begin(), roots.end());
    made.values = roots;
    for (const SlotId root : roots) made.freed += programs_.slots[root].bytes;
    for (std::size_t next = 0; next < made.values.size(); ++next) {
      const std::size_t at = maker_.at(made.values[next]);
      for (const SlotId slot : programs_.forward.instructions[at].inputs) {
        const SlotId root = programs_.root_of(slot);
        if (!seen.insert(root).second) continue;
        const std::size_t from = maker_of(root);
        if (from == kNone || read_by_others_.contains(root)) continue;  // it is there
        if (is_pointwise(from) && is_alike(from, at)) {
          made.values.push_back(root);
        } else if (!read_.contains(root)) {
          made.left += programs_.slots[root].bytes;
        }
      }
    }
    return made;
  }

  const Programs& programs_;
  std::vector<std::size_t> parent_;                // of instructions of the forward, to their chain's first
  std::unordered_map<SlotId, std::size_t> maker_;  // by root: the instruction of the forward
  std::unordered_set<SlotId> read_, read_by_others_;  // roots, by the backward; and by what is not pointwise
};

}  // namespace

std::vector<std::uint32_t> fused_again(const Programs& programs) { return Search(programs).run(); }

}  // namespace rekindle::session
