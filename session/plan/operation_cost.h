// estimated_seconds(): what an instruction costs, to compare instructions of one plan with each other.
//
// A roofline of one CPU core, or of a GPU: the larger of the time for its multiplications and the time for
// its bytes. Only ratios matter: the search of session/plan/recompute_search.h takes the most bytes a second
// first.
#pragma once

#include "session/plan/plan.h"

namespace rekindle::session {

double estimated_seconds(const Programs& programs, const Instruction& instruction, at::Device device);

}  // namespace rekindle::session
