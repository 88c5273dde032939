// pack_rows(): a graph that computes only the rows of tokens that are needed, which its caller chooses.
//
// An example: of 8 sequences of 128 tokens 300 are no padding. A Linear of [8, 128, 768] becomes one of
// [300, 768]; before an attention, which works on whole sequences, rows go back to their places, with zeros
// between them.
//
//   %r  = rekindle::PackRows(%x, %rows, %tokens)      [b, s, 768] -> [n, 768]
//   %y  = rekindle::Linear(%r, %w)                    [n, 768]
//   %yy = rekindle::UnpackRows(%y, %rows, %tokens)    [n, 768] -> [b, s, 768]
//
// The results, gradients and random numbers are those of the whole graph, as long as all rows are chosen that
// a loss, a selection or a chosen row needs. Results with a row for each token are zero in the other rows.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"
#include "src/padding/row_states.h"

namespace rekindle::padding {

// Says which rows are needed. Numbers are those of the questions' outputs.
struct RowQuestions {
  struct Target {  // [B · S]: rows whose target is not `ignored` are needed
    std::size_t output = 0;
    std::int64_t ignored = -100;
  };
  struct WeightOutput {  // [B · L, ...]: rows where it is not zero are needed; or, negated, where it is
    std::size_t output = 0;
    bool negated = false;
  };
  struct MaskOutput {
    std::size_t output = 0;
    Mask::How how = Mask::How::kAdded;
    bool operator==(const MaskOutput&) const = default;
  };
  struct Sight {  // what the queries of attentions see
    std::vector<MaskOutput> masks;
    bool causal = false;
    bool queries_are_rows = false;
    int rank = 4;  // of the scores: [B, ..., L, S]
    bool operator==(const Sight&) const = default;
  };
  std::vector<Target> targets;
  std::vector<WeightOutput> weights;
  std::vector<std::int64_t> positions;  // of each sequence
  std::vector<Sight> sights;
};

// How many vectors PackedGraph::graph takes.
inline constexpr std::size_t kRowInputs = 5;

struct PackedGraph {
  // The inputs of the whole graph, then kRowInputs vectors. Of int64: the rows that are needed, in increasing
  // order; those of them that losses and selections need; where these stand among the former. Of bool, for
  // the first and the second: which are needed, and do not only fill up.
  std::unique_ptr<graph::Graph> graph;
  std::array<std::string, 2> symbols;  // of how many rows are needed, and how many of these are counted
  // Takes the inputs of the whole graph and has no random draws.
  std::unique_ptr<graph::Graph> question_graph;
  RowQuestions questions;
  std::size_t products = 0;     // that leave rows out
  std::size_t tokens = 0;       // an input of the whole graph whose first sizes are B and S
  std::string needs_all;        // names the last node that needs all rows, if one does
  std::size_t row_results = 0;  // with zeros in rows that are left out
};

// `tokens`: the input of `forward` whose first two dimensions are those of the trials. `whole_results`: so
// many outputs, the last ones, keep all rows. kUnsupported, saying why, when no row can be left out, or
// nothing says which.
Result<PackedGraph> pack_rows(const graph::Graph& forward, std::size_t tokens, const TokenSizes& sizes,
                              std::size_t whole_results = 0);

}  // namespace rekindle::padding
