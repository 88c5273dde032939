// The `rekindle` program: builds the tree of nouns and verbs from the registry and runs one command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/command.h"

namespace rekindle::cli {
namespace {

const std::map<std::string, std::string> kNouns = {{"cache", "The cache of exported training graphs"}};

int run(int argc, char** argv) {
  CLI::App app("Rekindle: training graphs, exported once and rekindled from a cache.", "rekindle");
  app.set_version_flag("--version", std::string("rekindle ") + REKINDLE_VERSION);
  app.require_subcommand(1);
  std::map<std::string, CLI::App*> nouns;
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> verbs;
  for (const auto& [name, info] : commands()) {
    CLI::App*& noun = nouns[info.noun];
    if (noun == nullptr) noun = app.add_subcommand(info.noun, kNouns.at(info.noun))->require_subcommand(1);
    CLI::App* verb = noun->add_subcommand(info.verb, info.summary);
    verb->footer(std::string(help_page(name)));
    verbs.emplace_back(verb, info.make());
    verbs.back().second->declare(*verb);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  for (const auto& [verb, command] : verbs) {
    if (verb->parsed()) return command->run();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace rekindle::cli

int main(int argc, char** argv) {
  try {
    return rekindle::cli::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rekindle: %s\n", e.what());
    return rekindle::cli::kExitProblem;
  }
}
