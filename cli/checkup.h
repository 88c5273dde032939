// A checkup of a cache directory: what a person would look at, and what to do about what is wrong.
#pragma once

#include <string>
#include <vector>

namespace rekindle::cli {

enum class Verdict {
  kFine,
  kNote,   // worth knowing; nothing has to be done
  kWrong,  // the cache does not work, or not for long
};
// "ok", "note", "wrong".
const char* verdict_name(Verdict verdict);

struct Finding {
  std::string topic;  // "file system"
  std::string value;  // "ext4 on /home"
  Verdict verdict = Verdict::kFine;
  std::string advice{};  // what it means and what to do; empty when kFine
};

// Every topic in a fixed order; those that need a directory are left out when there is none. Changes nothing.
std::vector<Finding> examine(const std::string& dir);

}  // namespace rekindle::cli
