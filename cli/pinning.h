// What `rekindle cache pin` and `unpin` share: the same call for each of the named entries.
#pragma once

#include <string>
#include <vector>

#include "cli/cache_flags.h"
#include "cli/command.h"

namespace rekindle::cli {

class Pinning : public Command {
 public:
  using Change = Status (ExportCache::*)(const Digest& id);
  // done: "pinned".
  Pinning(Change change, std::string done) : change_(change), done_(std::move(done)) {}

  void declare(CLI::App& app) override;
  int run() override;

 private:
  const Change change_;
  const std::string done_;
  std::vector<std::string> prefixes_;
  CacheFlags flags_;
};

}  // namespace rekindle::cli
