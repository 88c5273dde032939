// RowStates: what each node of a graph does with the rows of tokens, as far as that is known.
//
// A row is what a value holds for one token: `x[b, s, :]`. A token whose row nobody needs is left out; its
// rows may then hold anything finite. What a node does decides which rows of its inputs it needs for which
// rows of its outputs: a Linear needs the same, attention those that its masks let a query see.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/graph/graph.h"
#include "src/padding/token_sizes.h"

namespace rekindle::padding {

enum class Kind : std::uint8_t {
  kNone,           // no rows, or nobody knows where
  kRows,           // a row of a token that is left out holds anything
  kScores,         // of queries and keys, the keys in the last dimension; of a key left out anything
  kMasked,         // scores, so low where a mask hides the key that their exponential is 0
  kProbabilities,  // 0 where a mask hides the key
  kRowMaximum,     // the largest masked score of each query
  kAllMasked,      // whether masks hide all keys from a query
};

// Dimensions, -1 for none. A flat dimension is batch and length in one.
struct State {
  Kind kind = Kind::kNone;
  int batch = -1, length = -1, flat = -1;
  int key = -1;                         // of scores and probabilities
  std::vector<std::size_t> masks = {};  // that have been applied, by number
  int weight = -1;                      // the number of a weight with which rows have been multiplied

  bool is_tracked() const { return kind != Kind::kNone; }
  bool has(int axis) const { return axis == batch || axis == length || axis == flat || axis == key; }
  // Whether batch and length, or both in one, come first.
  bool leads() const { return kind == Kind::kRows && ((batch == 0 && length == 1) || flat == 0); }
  bool same_rows(const State& other) const {
    return batch == other.batch && length == other.length && flat == other.flat;
  }
};

// Hides keys from queries: [B or 1, H or 1, L or 1, S], or fewer dimensions.
struct Mask {
  enum class How : std::uint8_t { kAdded, kKeeps, kHides };  // kKeeps: true shows the key
  graph::Value* value = nullptr;
  How how = How::kAdded;
};

// Is zero for rows that do not count: [B, L, ...] or [B · L, ...].
struct Weight {
  graph::Value* value = nullptr;
  bool negated = false;  // rows count where it is zero
};

struct Attention {
  const graph::Node* node = nullptr;  // which weighs the values
  std::vector<std::size_t> masks;
  bool causal = false;            // a query sees no later key
  bool queries_are_rows = false;  // otherwise each query counts
  int rank = 4;                   // of the scores: [B, ..., L, S]
};

enum class Use : std::uint8_t {
  kUnknown,    // needs all rows
  kRowWise,    // needs of each input the rows that are needed of its outputs
  kScoring,    // the same, from queries and keys up to the probabilities
  kAttention,  // needs the keys and values that needed queries see
  kLoss,       // needs the rows whose target is not ignored
  kSelection,  // needs the rows at some positions of each sequence
  kSum,        // needs the rows whose weight is not zero
};

struct NodeUse {
  Use use = Use::kUnknown;
  int mask_input = -1;  // needed as a whole
};

// Rows at the same positions of each sequence that a node reads, negative ones from the end.
struct Selection {
  const graph::Node* node = nullptr;
  std::vector<std::int64_t> positions;
};

struct RowStates {
  std::unordered_map<const graph::Value*, State> states;
  std::unordered_map<const graph::Node*, NodeUse> uses;
  std::vector<Mask> masks;
  std::vector<Weight> weights;
  std::vector<std::size_t> sums;  // weights of rows that are summed
  std::vector<Attention> attentions;
  std::vector<graph::Node*> losses;
  std::vector<Selection> selections;

  const State& of(const graph::Value* value) const;
  NodeUse of(const graph::Node* node) const;
};

RowStates find_row_states(const graph::Graph& graph, const TokenSizes& sizes);

// An additive mask at most this low hides its key: no score that is finite and of a usable size brings it
// back to where its exponential is not 0. PyTorch's models add -inf or the lowest number of their dtype.
inline constexpr double kHidden = -1e30;

}  // namespace rekindle::padding
