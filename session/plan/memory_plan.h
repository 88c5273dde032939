// MemoryPlan: how many forward values of each kind are made again in the backward; written down by the user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rekindle::session {

struct MemoryPlan {
  struct Kind {
    std::string kind;            // of subgraphs, as of session/plan/subgraphs.h
    std::int64_t recompute = 0;  // the first so many places of the graph; -1: all
  };

  std::string file;  // that it is from; messages name it
  std::vector<Kind> kinds;
};

// Sums up the places of one kind that a graph has.
struct SubgraphKind {
  std::string kind, source;    // source: the line of Python of the first place
  std::size_t count = 0;       // places
  std::size_t recomputed = 0;  // of these, the ones whose values the plan at hand makes again
  std::size_t bytes = 0;       // that all places together free
  double share = 0;            // of the step's estimated time that running all of them again takes
};

}  // namespace rekindle::session
