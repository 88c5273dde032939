// What the tests of this room share.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "export_cache/export_cache.h"
#include "export_cache/tiers/rocksdb_tier.h"
#include "export_cache/tiers/tier.h"

namespace rekindle::testing {

inline std::unique_ptr<ExportCache> open_cache(const std::string& dir,
                                               CacheMode mode = CacheMode::kReadWrite) {
  auto cache = ExportCache::open({.dir = dir, .mode = mode});
  if (!cache.ok()) FAIL(cache.error().message);
  return *std::move(cache);
}

// Entries of different names differ; `size` bytes of "exported" hold the name again and again.
inline Entry make_entry(const std::string& name, std::size_t size = 100) {
  Entry entry;
  std::string bytes;
  while (bytes.size() < size) bytes += name + ";";
  bytes.resize(size);
  entry.sections["exported"] = bytes;
  entry.sections["contract"] = "{\"name\": \"" + name + "\"}";
  entry.meta = R"({"model":"Tiny","mode":"train","inputs":"x[2,128]","export_seconds":1.5})";
  return entry;
}

// Of bytes that do not compress.
inline Entry noisy_entry(const std::string& name, std::size_t size) {
  Entry entry = make_entry(name);
  std::string bytes;
  for (std::uint64_t i = 0; bytes.size() < size; ++i) bytes += digest_of(name + std::to_string(i)).view();
  entry.sections["exported"] = bytes;
  return entry;
}

inline std::vector<std::string> database_files(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(dir + "/db"))
    files.push_back(file.path().filename().string());
  return files;
}

// Makes every entry look as if it had been stored and used so many seconds earlier.
inline void make_older(const std::string& dir, std::int64_t seconds) {
  const auto tier = make_rocksdb_tier({.dir = dir});
  REQUIRE(tier->update([&](TierWriter& writer) -> Status {
                REKINDLE_ASSIGN_OR_RETURN(const auto ids, writer.keys(Table::kSummary));
                for (const Digest& id : ids) {
                  auto info = decode_summary(**writer.get(Table::kSummary, id), id);
                  info->created -= seconds;
                  writer.put(Table::kSummary, id, *encode_summary(*info));
                }
                auto usage = decode_usage(**writer.get(Table::kUsage, Digest{}));
                for (auto& [id, used] : usage->entries) used.last_used -= seconds;
                writer.put(Table::kUsage, Digest{}, *encode_usage(*usage));
                writer.note(usage->counters.bytes);
                return {};
              })
              .ok());
}

}  // namespace rekindle::testing
