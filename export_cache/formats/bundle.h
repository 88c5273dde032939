// Bundle: entries in one file, to be carried to another cache.
//
//   bundle := magic count:u64 { size:u64 object }* digest     object: export_cache/formats/object.h
//   magic  := "RKBUNDLE" version:u32
//   digest := 16 bytes                                        XXH3-128 of all bytes before it
//
// Format version history
//   1  first version
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::uint32_t kBundleVersion = 1;

// Writes the objects of `ids` in this order; `path` is replaced when the bundle is whole, and untouched
// otherwise. The first Error of `object_of` ends it.
Status write_bundle(const std::string& path, const std::vector<Digest>& ids,
                    const std::function<Result<std::string>(const Digest& id)>& object_of);

// Checks the whole bundle, then visits each object. kNotFound when there is no file, kCorruption
// when it is not a sound bundle (nothing was visited then), kUnsupported for another version. Stops
// at the first Error of `visit`.
Status read_bundle(const std::string& path, const std::function<Status(std::string_view object)>& visit);

struct UnpackReport {
  std::uint64_t added = 0;    // entries that were new here
  std::uint64_t known = 0;    // that were here already
  std::uint64_t unsound = 0;  // that failed their checks and were left out
};

}  // namespace rekindle
