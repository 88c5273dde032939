#include "export_cache/upkeep/prune.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "export_cache/units.h"
#include "export_cache/upkeep/usage.h"

namespace rekindle {
namespace {

// A clock that was set back leaves times ahead of us.
std::int64_t age_of(std::int64_t time, std::int64_t now) { return std::max<std::int64_t>(0, now - time); }

std::int64_t touched(const EntryInfo& entry) { return std::max(entry.created, entry.last_used); }

std::string age_text(std::int64_t seconds) {
  constexpr std::int64_t kDay = 86400, kHour = 3600, kMinute = 60;
  if (seconds >= 2 * kDay) return std::to_string(seconds / kDay) + " days";
  if (seconds >= 2 * kHour) return std::to_string(seconds / kHour) + " hours";
  if (seconds >= 2 * kMinute) return std::to_string(seconds / kMinute) + " minutes";
  return std::to_string(seconds) + " seconds";
}

// Why the entry must stay; empty when it need not. Far ahead of our clock
// is not in use: it would stay for ever.
std::string protection(const EntryInfo& entry, std::int64_t now) {
  if (entry.pinned) return "pinned";
  if (std::abs(now - touched(entry)) < kInUseSeconds) return "in use";
  return {};
}

// Why the entry goes by a criterion other than max_bytes; empty when none selects it.
std::string selection(const EntryInfo& entry, const PrunePolicy& policy, std::int64_t now) {
  const std::int64_t age = age_of(entry.created, now), unused = age_of(touched(entry), now);
  if (policy.older_than && age > *policy.older_than) {
    return "stored " + age_text(age) + " ago, the limit is " + age_text(*policy.older_than);
  }
  if (policy.unused_since && unused > *policy.unused_since) {
    return "unused for " + age_text(unused) + ", the limit is " + age_text(*policy.unused_since);
  }
  const std::string torch = policy.not_torch.empty() ? "" : meta_value(entry, "torch");
  if (!policy.not_torch.empty() && torch != policy.not_torch) {
    return "made with torch " + (torch.empty() ? "of an unknown version" : torch) + ", not " +
           policy.not_torch;
  }
  if (policy.older_than || policy.unused_since || !policy.not_torch.empty() || policy.max_bytes) return {};
  if (policy.keep_last) return "not among the newest " + std::to_string(*policy.keep_last) + " of its model";
  return "of model " + policy.model;
}

// The newest `count` of each model.
std::set<Digest> newest_of_each_model(std::vector<const EntryInfo*> entries, std::size_t count) {
  std::ranges::stable_sort(entries, [](auto* a, auto* b) { return a->created > b->created; });
  std::map<std::string, std::size_t> seen;
  std::set<Digest> newest;
  for (const EntryInfo* entry : entries) {
    if (seen[meta_value(*entry, "model")]++ < count) newest.insert(entry->id);
  }
  return newest;
}

// Of `kept`, the least valuable until the others fit.
void shrink(std::vector<const EntryInfo*> kept, std::uint64_t limit, std::int64_t now, PrunePlan& plan) {
  std::uint64_t bytes = 0;
  for (const EntryInfo* entry : kept) bytes += entry->stored_bytes;
  std::ranges::stable_sort(
      kept, [&](auto* a, auto* b) { return value_per_byte(*a, now) < value_per_byte(*b, now); });
  for (const EntryInfo* entry : kept) {
    if (bytes <= limit) return;
    if (const std::string stays = protection(*entry, now); !stays.empty()) {
      const auto same = [&](const PruneItem& item) { return item.entry.id == entry->id; };
      if (std::ranges::none_of(plan.spared, same)) plan.spared.push_back({*entry, stays});
      continue;
    }
    plan.removed.push_back({*entry, "least seconds saved per byte, the limit is " + bytes_text(limit)});
    bytes -= entry->stored_bytes;
  }
}

}  // namespace

double value_per_byte(const EntryInfo& entry, std::int64_t now) {
  // What costs next to nothing is still worth more small than large.
  constexpr double kLeastSeconds = 1e-3;
  const auto decayed = [&](double heat, std::int64_t since) {
    return heat * std::exp2(-static_cast<double>(age_of(since, now)) / kHeatHalfLife);
  };
  const double heat = decayed(1, entry.created) + decayed(entry.heat, entry.last_used);
  const double bytes = static_cast<double>(std::max<std::uint64_t>(1, entry.stored_bytes));
  return heat * std::max(kLeastSeconds, entry.cost_seconds) / bytes;
}

PrunePlan plan_prune(const std::vector<EntryInfo>& entries, const PrunePolicy& policy, std::int64_t now) {
  PrunePlan plan;
  if (!policy.selects()) return plan;
  std::vector<const EntryInfo*> seen;
  for (const EntryInfo& entry : entries) {
    if (policy.model.empty() || meta_value(entry, "model") == policy.model) seen.push_back(&entry);
  }
  std::set<Digest> last;
  if (policy.keep_last) last = newest_of_each_model(seen, *policy.keep_last);
  std::ranges::stable_sort(seen, [](auto* a, auto* b) { return a->created < b->created; });
  std::vector<const EntryInfo*> kept;
  for (const EntryInfo* entry : seen) {
    const std::string why = selection(*entry, policy, now);
    const std::string stays =
        last.contains(entry->id) ? "among the newest of its model" : protection(*entry, now);
    if (why.empty() || !stays.empty()) kept.push_back(entry);
    if (!why.empty() && stays.empty()) plan.removed.push_back({*entry, why});
    if (!why.empty() && !stays.empty() && !last.contains(entry->id)) plan.spared.push_back({*entry, stays});
  }
  if (policy.max_bytes) {
    std::uint64_t reserved = 0;  // the last ones stay whatever their value
    std::erase_if(kept, [&](auto* entry) {
      if (last.contains(entry->id)) reserved += entry->stored_bytes;
      return last.contains(entry->id);
    });
    shrink(kept, *policy.max_bytes - std::min(*policy.max_bytes, reserved), now, plan);
  }
  return plan;
}

}  // namespace rekindle
