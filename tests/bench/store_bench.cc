// Times the export cache as a training process and the command use it: store_bench [ENTRIES] [DIR].
//
// Fills a cache with ENTRIES (10,000) small entries through bundles, then prints percentiles and
// the mean processor time in milliseconds; the latter does not depend on what else runs.
// docs/store.md has the figures.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "export_cache/export_cache.h"
#include "export_cache/formats/object.h"
#include "src/base/log.h"

using namespace rekindle;

namespace {

using Clock = std::chrono::steady_clock;

template <typename T>
T take(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <typename F>
void report(const char* what, int runs, const F& f) {
  std::vector<double> all;
  const std::clock_t cpu = std::clock();
  for (int i = 0; i < runs; ++i) {
    const auto start = Clock::now();
    f(i);
    all.push_back(ms_since(start));
  }
  const double cpu_each = 1000.0 * double(std::clock() - cpu) / CLOCKS_PER_SEC / runs;
  std::ranges::sort(all);
  const auto at = [&](double share) {
    return all[std::min(all.size() - 1, std::size_t(share * double(all.size())))];
  };
  std::printf("%-24s p50 %8.2f  p95 %8.2f  p99 %8.2f  cpu %8.2f  (%d runs)\n", what, at(0.5), at(0.95),
              at(0.99), cpu_each, runs);
  std::fflush(stdout);
}

std::string noise(const std::string& seed, std::size_t size) {
  std::string bytes;
  for (std::uint64_t i = 0; bytes.size() < size; ++i) bytes += digest_of(seed + std::to_string(i)).view();
  return bytes;
}

Entry entry_of(const std::string& name, std::size_t size) {
  Entry entry;
  entry.sections = {{"joint", noise(name, size)}, {"contract", R"({"inputs": [], "outputs": []})"}};
  entry.meta =
      R"({"model":"transformers.BertModel","mode":"train","inputs":"int64[2, 128], int64[2, 128]",)"
      R"("created":1700000000,"export_seconds":11.5,"cost_seconds":14.25,"torch":"2.11.0+cpu","rekindle":"0.1.0"})";
  return entry;
}

// In one bundle, and so in few commits: filling is not what is measured.
void fill(ExportCache& cache, const std::string& dir, int entries) {
  std::vector<std::string> objects;
  std::vector<Digest> ids;
  for (int i = 0; i < entries; ++i) {
    const Entry entry = entry_of("filler " + std::to_string(i), 2'000);
    ids.push_back(entry_id(entry));
    const std::vector<Reference> references = {
        {digest_of(std::to_string(i)), 1'700'000'000, noise("obs", 3'000)}};
    objects.push_back(take(encode_object(take(encode_entry(entry)), ids.back(), references)));
  }
  std::size_t next = 0;
  const Status packed =
      write_bundle(dir + "/bundle", ids, [&](const Digest&) { return Result<std::string>(objects[next++]); });
  if (!packed.ok()) std::exit(1);
  const auto start = Clock::now();
  std::printf("filled with %d entries", int(take(cache.unpack(dir + "/bundle")).added));
  std::printf(" in %.1f s\n", ms_since(start) / 1000);
}

}  // namespace

int main(int argc, char** argv) {
  set_log_level(LogLevel::kWarning);
  const int entries = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const std::string dir = std::string(argc > 2 ? argv[2] : "/var/tmp") + "/rekindle-store-bench";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  const auto cache = take(ExportCache::open({.dir = dir + "/cache"}));
  fill(*cache, dir, entries);
  std::vector<Digest> ids;
  report("store 2 MB, durable", 30, [&](int i) {
    ids.push_back(take(cache->store(digest_of("large " + std::to_string(i)), "obs",
                                    entry_of("large " + std::to_string(i), 2'000'000))));
  });
  const auto reader = take(ExportCache::open({.dir = dir + "/cache", .mode = CacheMode::kReadOnly}));
  report("open the cache", 100, [&](int) { take(ExportCache::open({.dir = dir + "/cache"})); });
  report("lookup", 200, [&](int i) { take(reader->lookup(digest_of(std::to_string(i)))); });
  report("load 2 MB", 200, [&](int i) { take(reader->load(ids[std::size_t(i) % ids.size()])); });
  const Digest small = take(reader->lookup(digest_of("1")))[0].entry;
  report("load 2 KB", 2000, [&](int) { take(reader->load(small)); });
  report("record a hit", 200, [&](int) { cache->record_hit(ids[0], 1); });
  report("stats", 20, [&](int) { take(reader->stats()); });
  report("ls", 20, [&](int) { take(reader->list()); });
  report("find by prefix", 20, [&](int) { take(reader->find(ids[0].hex().substr(0, 12))); });
  report("verify --quick", 3, [&](int) { take(reader->verify({.depth = VerifyOptions::Depth::kQuick})); });
  report("verify", 1, [&](int) { take(reader->verify({})); });
  std::filesystem::remove_all(dir);
  return 0;
}
