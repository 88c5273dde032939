// What the tests of this room share.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "export_cache/export_cache.h"

namespace rekindle::testing {

inline std::unique_ptr<ExportCache> open_cache(const std::string& dir,
                                               CacheMode mode = CacheMode::kReadWrite) {
  auto cache = ExportCache::open({.dir = dir, .mode = mode});
  REQUIRE(cache.ok());
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

}  // namespace rekindle::testing
