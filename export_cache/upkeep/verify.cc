#include "export_cache/upkeep/verify.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "export_cache/formats/manifest.h"
#include "export_cache/formats/object.h"
#include "export_cache/formats/record.h"
#include "export_cache/formats/summary.h"
#include "export_cache/formats/tombstones.h"
#include "export_cache/upkeep/checker.h"
#include "export_cache/upkeep/usage.h"

namespace rekindle {

const char* verify_problem_name(VerifyProblem::Kind kind) {
  switch (kind) {
    case VerifyProblem::Kind::kUnsoundRecord:
      return "unsound record";
    case VerifyProblem::Kind::kUnsoundEntry:
      return "unsound entry";
    case VerifyProblem::Kind::kUnreadableEntry:
      return "unreadable entry";
    case VerifyProblem::Kind::kMissingEntry:
      return "missing entry";
    case VerifyProblem::Kind::kUnlistedEntry:
      return "unlisted entry";
    case VerifyProblem::Kind::kRejectedEntry:
      return "rejected entry";
    case VerifyProblem::Kind::kDamagedDatabase:
      return "damaged database";
  }
  return "unknown";
}

std::uint64_t VerifyReport::left() const {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(problems, [](const VerifyProblem& problem) { return !problem.repaired; }));
}

namespace {

using Kind = VerifyProblem::Kind;

class Checker {
 public:
  Checker(TierReader& view, const VerifyOptions& options) : view_(view), options_(options) {}

  Result<VerifyReport> run() {
    REKINDLE_RETURN_IF_ERROR(check_summaries());
    REKINDLE_RETURN_IF_ERROR(check_manifests());
    REKINDLE_RETURN_IF_ERROR(check_single(Table::kUsage));
    REKINDLE_RETURN_IF_ERROR(check_single(Table::kTombstones));
    REKINDLE_RETURN_IF_ERROR(check_pins());
    REKINDLE_RETURN_IF_ERROR(check_entries());
    return std::move(report_);
  }

 private:
  void found(Kind kind, const Digest& id, std::string what) {
    report_.problems.push_back({kind, id, std::move(what)});
  }

  Status check_summaries() {
    return view_.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
      const auto info = decode_summary(record, id);
      if (info.ok()) {
        ++report_.entries;
        listed_[id] = info->prekeys;
      } else {
        found(Kind::kUnsoundRecord, id, info.error().message);
      }
    });
  }

  Status check_manifests() {
    return view_.for_each(Table::kManifest, [&](const Digest& prekey, std::string_view record) {
      const auto candidates = decode_manifest(record, prekey);
      if (!candidates.ok()) return found(Kind::kUnsoundRecord, prekey, candidates.error().message);
      for (const Candidate& candidate : *candidates) named_[candidate.entry].insert(prekey);
    });
  }

  Status check_single(Table table) {
    REKINDLE_ASSIGN_OR_RETURN(const auto record, view_.get(table, Digest{}));
    if (!record) return {};
    const Status status =
        table == Table::kUsage ? status_of(decode_usage(*record)) : status_of(decode_tombstones(*record));
    if (!status.ok()) found(Kind::kUnsoundRecord, Digest{}, status.error().message);
    return {};
  }

  Status check_pins() {
    return view_.for_each(Table::kPin, [&](const Digest& id, std::string_view record) {
      const auto pin = decode_record(record, RecordKind::kPin, id);
      if (!pin.ok()) found(Kind::kUnsoundRecord, id, pin.error().message);
    });
  }

  Status check_entries() {
    REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> keys, view_.keys(Table::kEntry));
    const std::set<Digest> present(keys.begin(), keys.end());
    for (const auto& [id, prekeys] : listed_) {
      if (!present.contains(id))
        found(Kind::kMissingEntry, id, "entry " + id.hex() + " is listed and not there");
    }
    for (const auto& [id, prekeys] : named_) {
      if (present.contains(id) || listed_.contains(id)) continue;
      found(Kind::kMissingEntry, id, "entry " + id.hex() + " is a candidate and not there");
    }
    for (const Digest& id : keys) check_named(id);
    if (options_.depth == VerifyOptions::Depth::kQuick) return {};
    for (const Digest& id : sampled(keys)) check_bytes(id);
    return {};
  }

  void check_named(const Digest& id) {
    const auto listed = listed_.find(id);
    if (listed == listed_.end())
      return found(Kind::kUnlistedEntry, id, "entry " + id.hex() + " is not listed");
    for (const Digest& prekey : listed->second) {
      if (named_[id].contains(prekey)) continue;
      return found(Kind::kUnlistedEntry, id,
                   "entry " + id.hex() + " is no candidate under " + prekey.hex() + ", its summary says so");
    }
  }

  void check_bytes(const Digest& id) {
    const auto read = view_.get(Table::kEntry, id);
    if (!read.ok()) return found(Kind::kUnreadableEntry, id, read.error().message);
    const std::optional<std::string>& object = *read;
    if (!object) return;
    ++report_.entries_read;
    report_.bytes_read += object->size();
    const auto entry = decode_object_entry(*object, id);
    if (!entry.ok()) {
      found(Kind::kUnsoundEntry, id, entry.error().message);
    } else if (const auto refs = decode_object_references(*object, id); !refs.ok()) {
      found(Kind::kUnsoundEntry, id, refs.error().message);
    } else if (options_.depth == VerifyOptions::Depth::kDeep && options_.inspect) {
      const Status status = options_.inspect(id, *entry);
      if (!status.ok()) found(Kind::kRejectedEntry, id, status.error().message);
    }
  }

  std::vector<Digest> sampled(const std::vector<Digest>& keys) const {
    if (options_.sample >= 1) return keys;
    std::vector<Digest> chosen;
    std::ranges::sample(
        keys, std::back_inserter(chosen),
        static_cast<std::ptrdiff_t>(std::ceil(options_.sample * static_cast<double>(keys.size()))),
        std::mt19937_64(std::random_device()()));
    return chosen;
  }

  template <typename T>
  static Status status_of(const Result<T>& result) {
    return result.ok() ? Status() : Status(result.error());
  }

  TierReader& view_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::map<Digest, std::vector<Digest>> listed_;  // entry -> prekeys, as its summary says
  std::map<Digest, std::set<Digest>> named_;      // entry -> prekeys, as the manifests say
};

}  // namespace

Result<VerifyReport> check_store(TierReader& view, const VerifyOptions& options) {
  return Checker(view, options).run();
}

namespace {

bool is_sound(Table table, std::string_view record, const Digest& key) {
  switch (table) {
    case Table::kManifest:
      return decode_manifest(record, key).ok();
    case Table::kSummary:
      return decode_summary(record, key).ok();
    default:
      return decode_record(record, RecordKind::kPin, key).ok();
  }
}

// Usage and tombstones are written anew by every update; what the others held is found again in the entries.
Status drop_unsound_records(TierWriter& writer, const Digest& key) {
  for (const Table table : {Table::kManifest, Table::kSummary, Table::kPin}) {
    REKINDLE_ASSIGN_OR_RETURN(const auto record, writer.get(table, key));
    if (record && !is_sound(table, *record, key)) writer.remove(table, key);
  }
  return {};
}

// From the manifests, for an object whose second half is unsound.
Result<std::vector<Reference>> collect_references(TierReader& view, const Digest& id) {
  std::vector<Reference> references;
  REKINDLE_RETURN_IF_ERROR(
      view.for_each(Table::kManifest, [&](const Digest& prekey, std::string_view record) {
        auto candidates = decode_manifest(record, prekey);
        if (!candidates.ok()) return;
        for (Candidate& candidate : *candidates) {
          if (candidate.entry == id)
            references.push_back({prekey, candidate.created, candidate.observations});
        }
      }));
  return references;
}

// As the summary says, where there still is one.
Result<std::int64_t> created_of(TierReader& view, const Digest& id, std::int64_t now) {
  REKINDLE_ASSIGN_OR_RETURN(const auto record, view.get(Table::kSummary, id));
  const auto info = record ? decode_summary(*record, id) : Result<EntryInfo>(not_found(""));
  return info.ok() ? info->created : now;
}

// An update that removed the entry was killed before it deleted the file.
Result<bool> was_removed(Change& change, const Digest& id) {
  const std::optional<Tombstone> gone = change.tombstones.find(id);
  if (!gone) return false;
  REKINDLE_ASSIGN_OR_RETURN(const auto object, change.writer.get(Table::kEntry, id));
  if (!object) return true;
  const auto references = decode_object_references(*object, id);
  return references.ok() && !references->empty() && references->front().created <= gone->time;
}

// False when it cannot be saved.
Result<bool> restore_object(Change& change, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(const auto object, change.writer.get(Table::kEntry, id));
  if (!object || !decode_object_entry(*object, id).ok()) return false;
  std::string whole = *object;
  if (!decode_object_references(whole, id).ok()) {
    REKINDLE_ASSIGN_OR_RETURN(std::vector<Reference> references, collect_references(change.writer, id));
    REKINDLE_ASSIGN_OR_RETURN(const std::string_view record, entry_record_of(*object));
    REKINDLE_ASSIGN_OR_RETURN(whole, encode_object(record, id, std::move(references)));
  }
  REKINDLE_ASSIGN_OR_RETURN(const std::int64_t created, created_of(change.writer, id, change.now));
  auto parts = take_apart(whole, created);
  if (!parts.ok()) return false;
  REKINDLE_RETURN_IF_ERROR(put_object(change, whole, *std::move(parts)));
  return true;
}

}  // namespace

Status repair_problem(Change& change, VerifyProblem& problem) {
  problem.repaired = true;
  if (problem.kind != Kind::kUnlistedEntry && problem.kind != Kind::kUnreadableEntry)
    change.usage.apply({.kind = EventKind::kCorrupt});
  switch (problem.kind) {
    case Kind::kUnsoundRecord:
      return drop_unsound_records(change.writer, problem.id);
    case Kind::kUnsoundEntry:
    case Kind::kUnlistedEntry: {
      REKINDLE_ASSIGN_OR_RETURN(const bool removed, was_removed(change, problem.id));
      if (removed) {
        change.writer.remove(Table::kEntry, problem.id);
        return {};
      }
      REKINDLE_ASSIGN_OR_RETURN(const bool saved, restore_object(change, problem.id));
      return saved ? Status() : remove_entry(change, problem.id, GoneReason::kCorrupt);
    }
    case Kind::kMissingEntry:
    case Kind::kRejectedEntry:
      return remove_entry(change, problem.id, GoneReason::kCorrupt);
    case Kind::kUnreadableEntry:
      problem.repaired = false;
      break;
    case Kind::kDamagedDatabase:  // an update replaces it before it begins
      break;
  }
  return {};
}

}  // namespace rekindle
