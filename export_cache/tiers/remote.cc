#include "export_cache/tiers/remote.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace rekindle {
namespace {

constexpr int kMostFailures = 3;
constexpr std::string_view kSeparator = "://";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string known_schemes() {
  std::string known;
  for (const std::string& name : remote_tiers().names()) known += (known.empty() ? "" : ", ") + name;
  return known;
}

}  // namespace

struct Remote::Entry {
  std::string name;
  bool readonly = false;
  std::unique_ptr<RemoteTier> tier;
  std::atomic<int> failures = 0;  // in a row
  std::atomic<bool> warned = false;

  bool usable() const { return failures < kMostFailures; }
};

Remote::Remote() = default;
Remote::~Remote() = default;

Result<std::unique_ptr<Remote>> Remote::parse(std::string_view text) {
  std::unique_ptr<Remote> remote(new Remote());
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    std::string_view one = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    auto entry = std::make_unique<Entry>();
    entry->readonly = one.ends_with(" ro");
    if (entry->readonly) one = trimmed(one.substr(0, one.size() - 3));
    entry->name = one;
    const std::size_t separator = one.find(kSeparator);
    const auto* factory =
        separator == std::string_view::npos ? nullptr : remote_tiers().find(one.substr(0, separator));
    if (factory == nullptr) {
      return invalid_argument(
          "'" + entry->name + "' names no kind of tier; known: " + known_schemes() +
          "; write it like file:///shared/rekindle or http://cache.example:8080/rekindle");
    }
    REKINDLE_ASSIGN_OR_RETURN(entry->tier,
                              (*factory)(std::string(one.substr(separator + kSeparator.size()))));
    remote->tiers_.push_back(std::move(entry));
  }
  return remote;
}

void Remote::note(Entry& entry, const Status& status) {
  if (status.ok()) {
    entry.failures = 0;
    return;
  }
  if (status.error().code == ErrorCode::kCorruption) {
    ++corrupt_;
    log_debug("tier " + entry.name + ": " + status.error().message);
    return;
  }
  ++failures_;
  ++entry.failures;
  const std::string message = "tier " + entry.name + " failed: " + status.error().message;
  entry.warned.exchange(true) ? log_debug(message) : log_warning(message + "; training goes on without it");
}

Result<std::vector<Candidate>> Remote::read_manifest(Entry& entry, const Digest& prekey) {
  REKINDLE_ASSIGN_OR_RETURN(const auto record, entry.tier->get(RemoteTier::Space::kManifests, prekey));
  if (!record) return std::vector<Candidate>();
  return decode_manifest(*record, prekey);
}

std::vector<Candidate> Remote::lookup(const Digest& prekey) {
  if (!empty()) ++lookups_;
  std::vector<Candidate> found;
  for (const auto& entry : tiers_) {
    if (!entry->usable()) continue;
    auto candidates = read_manifest(*entry, prekey);
    note(*entry, candidates.ok() ? Status() : Status(candidates.error()));
    if (!candidates.ok()) continue;
    for (Candidate& candidate : *candidates) {
      const bool known = std::ranges::any_of(found, [&](const Candidate& other) {
        return other.entry == candidate.entry && other.observations == candidate.observations;
      });
      if (!known) found.push_back(std::move(candidate));
    }
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.created > b.created; });
  return found;
}

std::optional<std::string> Remote::load(const Digest& id) {
  for (const auto& entry : tiers_) {
    if (!entry->usable()) continue;
    auto object = entry->tier->get(RemoteTier::Space::kObjects, id);
    Status status = object.ok() ? Status() : Status(object.error());
    if (object.ok() && *object) status = check_object(**object, id);
    note(*entry, status);
    if (!status.ok() || !*object) continue;
    ++hits_;
    return **std::move(object);
  }
  return std::nullopt;
}

Status Remote::publish_to(Entry& entry, std::string_view object, const Digest& id,
                          const std::vector<Reference>& references) {
  REKINDLE_ASSIGN_OR_RETURN(const auto there, entry.tier->get(RemoteTier::Space::kObjects, id));
  if (!there || !check_object(*there, id).ok()) {
    REKINDLE_RETURN_IF_ERROR(entry.tier->put(RemoteTier::Space::kObjects, id, object));
    ++uploads_;
  }
  for (const Reference& reference : references) {
    auto candidates = read_manifest(entry, reference.prekey);
    if (!candidates.ok() && candidates.error().code != ErrorCode::kCorruption) return candidates.error();
    std::vector<Candidate> merged = candidates.ok() ? *std::move(candidates) : std::vector<Candidate>();
    add_candidate(merged, {id, reference.observations, reference.created});
    REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_manifest(reference.prekey, merged));
    REKINDLE_RETURN_IF_ERROR(entry.tier->put(RemoteTier::Space::kManifests, reference.prekey, record));
  }
  return {};
}

void Remote::publish(std::string_view object, const Digest& id, const std::vector<Reference>& references) {
  for (const auto& entry : tiers_) {
    if (entry->readonly || !entry->usable()) continue;
    note(*entry, publish_to(*entry, object, id, references));
  }
}

RemoteStats Remote::stats() const { return {lookups_, hits_, uploads_, failures_, corrupt_}; }

}  // namespace rekindle
