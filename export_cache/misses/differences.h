// What differs between two LeafTrees, leaf by leaf, and how alike they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export_cache/formats/leaf_tree.h"

namespace rekindle {

struct Difference {
  std::string path;
  std::string before;  // for people: digests are shortened; kAbsent where there is nothing
  std::string after;
  std::uint64_t places = 1;  // leaves that differ in the same way; `path` is the first of them

  bool operator==(const Difference&) const = default;
};
inline constexpr const char* kAbsent = "absent";

// Everything that differs, digests followed down to the parts that do; versions first, else in the order of
// `before`. Empty exactly when the leaves are equal.
std::vector<Difference> differences(const LeafTree& before, const LeafTree& after);

struct Similarity {
  std::uint64_t equal = 0;
  std::uint64_t total = 0;  // leaves of either
  double score = 0;         // 0 to 1: the share of equal leaves per group, groups weighted
};

// Compares the fields of the key only. A group is what a path begins with: the module tree weighs most, then
// the inputs, then ambient state and options, then versions.
Similarity similarity(const LeafTree& a, const LeafTree& b);

// What an observation's path begins with: "function", "class", "global", "from", "import", "env", "file".
bool is_observation(std::string_view path);

}  // namespace rekindle
