// Program: the command line as a tree of nouns and verbs, built from the registry.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"

namespace rekindle::cli {

// Not thread-safe. Used once: parsing leaves its marks in it.
class Program {
 public:
  Program();

  // Parses and runs one command; its exit code.
  int run(int argc, char** argv);
  const CLI::App& tree() const { return app_; }

 private:
  CLI::App app_;
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> verbs_;
};

}  // namespace rekindle::cli
