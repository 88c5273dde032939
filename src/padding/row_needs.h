// RowNeeds: which values may leave rows out, and who says which rows are needed.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "src/padding/row_states.h"

namespace rekindle::padding {

struct RowNeeds {
  // Values of which nobody needs a row that is left out.
  std::unordered_set<const graph::Value*> may_leave_out;
  // The keys and values of these attentions, of those in RowStates, may leave rows out.
  std::vector<const Attention*> attentions;
  // Nodes before such an attention: their rows are those that it needs, too. Others need those of losses and
  // selections only.
  std::unordered_set<const graph::Node*> before_attention;
};

// Results of the graph that have a row for each token may leave rows out, but for the last `whole_results`:
// they are zero there.
RowNeeds find_row_needs(const graph::Graph& graph, const RowStates& states, std::size_t whole_results);

// "CumSum at model.py:12": what needs all rows and comes last, so that nothing before it leaves any out;
// empty where nothing does.
std::string last_that_needs_all(const graph::Graph& graph, const RowStates& states);

}  // namespace rekindle::padding
