// The work behind ExportCache::verify, over one consistent view.
#pragma once

#include "export_cache/tiers/tier.h"
#include "export_cache/upkeep/references.h"
#include "export_cache/upkeep/verify.h"
#include "src/base/result.h"

namespace rekindle {

// Reads and reports; repairs nothing.
Result<VerifyReport> check_store(TierReader& view, const VerifyOptions& options);

// Drops what is wrong or writes it again from what is sound, and marks
// the problem. In the order of the report.
Status repair_problem(Change& change, VerifyProblem& problem);

}  // namespace rekindle
