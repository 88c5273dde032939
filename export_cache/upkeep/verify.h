// What `rekindle cache verify` checks and finds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "export_cache/formats/entry.h"
#include "src/base/digest.h"

namespace rekindle {

struct VerifyOptions {
  enum class Depth {
    kQuick,  // the index: every record decodes, manifests and summaries name each other, every entry is there
    kDefault,  // also every entry's bytes: lengths, checksums, digests, ids
    kDeep,     // also what `inspect` says of every sound entry
  };
  Depth depth = Depth::kDefault;
  double sample = 1;  // the share of the entries whose bytes are read, in (0, 1]: at least one, chosen anew
  // Drop what is unsound (counted as corrupt), write again what can be derived from the rest.
  bool repair = false;
  // kDeep: an Error names what is wrong with the entry. The cache knows
  // bytes only, so the caller brings this.
  std::function<Status(const Digest& id, const Entry& entry)> inspect{};
};

struct VerifyProblem {
  enum class Kind {
    kUnsoundRecord,    // a manifest, summary, usage, tombstone or pin record fails its checks
    kUnsoundEntry,     // the bytes of an entry fail their checks
    kUnreadableEntry,  // the system refuses to read an entry; a repair leaves it, for others may read it
    kMissingEntry,     // a summary or a candidate without its entry
    kUnlistedEntry,    // an entry that no summary or no candidate names
    kRejectedEntry,    // kDeep: VerifyOptions::inspect
    kDamagedDatabase,  // it cannot be read; a repair sets it aside and rebuilds it from what can be saved
  };
  Kind kind;
  Digest id;         // of the entry, else the key of the record
  std::string what;  // names the record and the check
  bool repaired = false;
};
// "unsound record", ... for messages and JSON.
const char* verify_problem_name(VerifyProblem::Kind kind);

struct VerifyReport {
  std::uint64_t entries = 0;       // listed
  std::uint64_t entries_read = 0;  // whose bytes were checked
  std::uint64_t bytes_read = 0;
  std::vector<VerifyProblem> problems{};

  bool clean() const { return problems.empty(); }
  // Problems that are still there.
  std::uint64_t left() const;
};

}  // namespace rekindle
