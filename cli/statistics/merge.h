// Joins the statistics of several ranks into those of one run.
#pragma once

#include <vector>

#include "cli/statistics/records.h"
#include "src/base/result.h"

namespace rekindle::cli {

// Outputs and their gradients are parts of one larger tensor: counts and histograms are added, and mean, std
// and norm are those of all elements. Parameters and their gradients are copies: counts stay, and norm, mean
// and std are the root mean square, or mean, over the ranks. A tensor that not every rank has is joined over
// those that have it; where a rank ends early, the merged run ends with its last step. kInvalidArgument where
// a tensor has another dtype in another rank, or not every rank of the run is there once.
Result<Run> merge(const std::vector<Run>& ranks);

}  // namespace rekindle::cli
