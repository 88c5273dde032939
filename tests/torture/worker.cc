// The process that scripts/torture starts, kills, starves and feeds damaged
// directories. Only the public interface.
//
//   worker churn DIR SEED        stores and reads until killed; says "committed NAME" before it goes on
//   worker endure DIR SEED       the same where entries may vanish: somebody removes the directory meanwhile
//   worker fill DIR COUNT SEED   stores COUNT entries with all that lies beside them; says "committed NAME"
//   worker reversion DIR N       turns every entry's record into one of format version N, sound otherwise
//   worker use DIR               reads the names on stdin, uses the cache in every way, and reports as JSON
//
// An entry's content follows from its name, so that every byte that comes back can be checked. Exit status:
// 0, or 3 when a byte was wrong or a call failed in a way that its contract does not allow.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "export_cache/export_cache.h"
#include "export_cache/formats/record.h"

using namespace rekindle;

namespace {

constexpr int kBroken = 3;

[[noreturn]] void broken(const std::string& what) {
  std::printf("BROKEN %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(kBroken);
}

// A system that refuses is part of the contract, a bug is not.
void allow(const Error& error, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), error.message.c_str());
  if (error.code == ErrorCode::kIo || error.code == ErrorCode::kUnsupported) return;
  broken(what + ": " + error_code_name(error.code) + ": " + error.message);
}

// "<name>" -> between 100 bytes and 200 kB that follow from it, and do not compress to nothing.
Entry entry_named(const std::string& name) {
  std::mt19937_64 random(checksum_of(name));
  std::string bytes(random() % 4 == 0 ? 200'000 : 100 + random() % 5000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % 64);
  Entry entry;
  entry.sections["exported"] = std::move(bytes);
  entry.sections["contract"] = "{\"name\": \"" + name + "\"}";
  entry.meta = nlohmann::json{{"model", "Torture"}, {"name", name}, {"export_seconds", 1.5}}.dump();
  return entry;
}

Digest prekey_of(const std::string& name) { return digest_of("prekey " + name); }

void check(const Entry& found, const std::string& name) {
  if (found.sections != entry_named(name).sections) broken("entry " + name + " has other bytes");
}

bool store(ExportCache& cache, const std::string& name) {
  const auto id = cache.store(prekey_of(name), "observed " + name, entry_named(name));
  if (!id.ok()) {
    allow(id.error(), "store " + name);
    return false;
  }
  if (*id != entry_id(entry_named(name))) broken("entry " + name + " was stored under another id");
  return true;
}

void say_committed(const std::string& name) {
  const std::string line = "committed " + name + "\n";  // shorter than PIPE_BUF: whole or not at all
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::_Exit(1);
}

// Whether the entry is there, found as a training process finds it.
bool find(ExportCache& cache, const std::string& name) {
  const auto candidates = cache.lookup(prekey_of(name));
  if (!candidates.ok()) {
    allow(candidates.error(), "lookup " + name);
    return false;
  }
  for (const Candidate& candidate : *candidates) {
    if (candidate.observations != "observed " + name) broken("prekey of " + name + " has other observations");
    const auto entry = cache.load(candidate.entry);
    if (!entry.ok()) {
      allow(entry.error(), "load " + name);
    } else if (*entry) {
      check(**entry, name);
      cache.record_hit(candidate.entry, 0.5);
      return true;
    }
  }
  return false;
}

// Null, if `may_vanish`, for a directory that is half removed at the
// moment: it is refused as somebody else's.
std::unique_ptr<ExportCache> open_cache(const std::string& dir, bool may_vanish = false) {
  auto cache = ExportCache::open({.dir = dir, .size_limit = 0});
  if (cache.ok()) return *std::move(cache);
  if (may_vanish) return nullptr;
  std::fprintf(stderr, "open: %s\n", cache.error().message.c_str());
  std::exit(1);
}

template <typename T>
void allow_result(const Result<T>& result, const char* what) {
  if (!result.ok()) allow(result.error(), what);
}

int churn(const std::string& dir, const std::string& seed, bool may_vanish) {
  std::mt19937_64 random(checksum_of(seed));
  std::vector<std::string> mine;
  for (int i = 0;; ++i) {
    const auto cache = open_cache(dir, may_vanish);  // anew each time, as a process that starts does
    if (cache == nullptr) continue;
    const auto choice = random() % 10;
    if (mine.empty() || choice < 4) {
      const std::string name = seed + "-" + std::to_string(i);
      if (!store(*cache, name)) continue;
      say_committed(name);
      mine.push_back(name);
    } else if (choice < 8) {
      const std::string& name = mine[random() % mine.size()];
      if (!find(*cache, name) && !may_vanish) broken("entry " + name + " was committed and is gone");
    } else if (choice == 8) {
      allow_result(cache->list(), "list");
    } else {
      allow_result(cache->stats(), "stats");
      cache->record_bypass("opaque_attr");
    }
  }
}

int fill(const std::string& dir, int count, const std::string& seed) {
  const auto cache = open_cache(dir);
  for (int i = 0; i < count; ++i) {
    const std::string name = seed + "-" + std::to_string(i);
    if (!store(*cache, name)) return 1;
    say_committed(name);
    if (i % 3 == 0 && !cache->pin(entry_id(entry_named(name))).ok()) return 1;
  }
  const Digest gone = *cache->store(prekey_of("gone"), "observed gone", entry_named("gone"));
  if (!cache->remove(gone).ok()) return 1;
  // Last, so that journals are left over.
  if (!find(*cache, seed + "-0")) return 1;
  cache->record_bypass("opaque_attr");
  return 0;
}

// One record after the other: its version, then its checksum, which ends it (export_cache/formats/record.h).
std::string reversioned(std::string_view records, std::uint16_t version) {
  std::string changed;
  while (!records.empty()) {
    const auto size = claimed_record_size(records);
    if (!size.ok()) broken(size.error().message);
    std::string record(records.substr(0, *size));
    std::memcpy(record.data() + 4, &version, sizeof(version));
    const std::uint64_t sum = checksum_of(std::string_view(record).substr(0, record.size() - sizeof(sum)));
    std::memcpy(record.data() + record.size() - sizeof(sum), &sum, sizeof(sum));
    changed += record;
    records.remove_prefix(*size);
  }
  return changed;
}

int reversion(const std::string& dir, std::uint16_t version) {
  for (const auto& file : std::filesystem::directory_iterator(dir + "/objects")) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << reversioned(bytes, version);
  }
  return 0;
}

int use(const std::string& dir) {
  const auto cache = open_cache(dir);
  std::vector<std::string> lost;
  std::uint64_t found = 0;
  for (std::string name; std::getline(std::cin, name);)
    find(*cache, name) ? void(++found) : lost.push_back(name);
  const auto listed = cache->list();
  allow_result(listed, "list");
  const auto before = cache->verify({});
  allow_result(before, "verify");
  const bool stored = store(*cache, "afterwards") && find(*cache, "afterwards");
  const auto repaired = cache->verify({.repair = true});
  allow_result(repaired, "repair");
  const auto after = cache->verify({});
  allow_result(after, "verify again");
  const auto stats = cache->stats();
  allow_result(stats, "stats");
  nlohmann::json report = {{"found", found}, {"lost", lost}, {"stored", stored}};
  report["listed"] = listed.ok() ? listed->size() : 0;
  report["problems"] = before.ok() ? before->problems.size() : 0;
  report["clean"] = after.ok() && after->clean();
  report["left"] = nlohmann::json::array();
  if (after.ok()) {
    for (const VerifyProblem& problem : after->problems) report["left"].push_back(problem.what);
  }
  report["corrupt"] = stats.ok() ? stats->corrupt : 0;
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "churn") return churn(words[1], words[2], false);
  if (words.size() == 3 && words[0] == "endure") return churn(words[1], words[2], true);
  if (words.size() == 3 && words[0] == "reversion") {
    return reversion(words[1], static_cast<std::uint16_t>(std::stoi(words[2])));
  }
  if (words.size() == 4 && words[0] == "fill") return fill(words[1], std::stoi(words[2]), words[3]);
  if (words.size() == 2 && words[0] == "use") return use(words[1]);
  std::fprintf(stderr,
               "usage: worker churn|endure DIR SEED | reversion DIR N | fill DIR COUNT SEED | use DIR\n");
  return 64;
}
