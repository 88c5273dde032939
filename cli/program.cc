#include "cli/program.h"

#include <map>

namespace rekindle::cli {
namespace {

const std::map<std::string, std::string> kNouns = {
    {"cache", "The cache of exported training graphs"},
    {"completion", "Scripts that let a shell complete verbs, flags and entry ids"},
    {"diff", "The first tensor in which two training runs differ"},
    {"exec", "Run a training program with settings for its models"},
    {"profile", "Where the time of a training step goes"},
};

// A variable of a script that is not set would otherwise stand for the default, and clear another cache.
void refuse_empty_values(CLI::App& verb) {
  const auto check = [](const std::string& value) {
    return value.empty() ? std::string("the value is empty; leave the option out for its default")
                         : std::string();
  };
  for (CLI::Option* option : verb.get_options()) {
    if (!option->get_positional() && option->get_expected_min() > 0) option->check(CLI::Validator(check, ""));
  }
}

}  // namespace

Program::Program()
    : app_("Rekindle: training graphs, exported once and rekindled from a cache.", "rekindle") {
  app_.set_version_flag("--version", std::string("rekindle ") + REKINDLE_VERSION);
  app_.require_subcommand(1);
  std::map<std::string, CLI::App*> nouns;
  for (const auto& [name, info] : commands()) {
    CLI::App*& noun = nouns[info.noun];
    if (noun == nullptr) noun = app_.add_subcommand(info.noun, kNouns.at(info.noun))->require_subcommand(1);
    if (info.verb.empty()) noun->require_subcommand(0, 1);
    CLI::App* verb = info.verb.empty() ? noun : noun->add_subcommand(info.verb, info.summary);
    if (info.summary.empty()) verb->group("");
    verb->footer(std::string(help_page(name)));
    verbs_.emplace_back(verb, info.make());
    verbs_.back().second->declare(*verb);
    refuse_empty_values(*verb);
  }
}

int Program::run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app_.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  for (const auto& [verb, command] : verbs_) {
    if (verb->parsed() && verb->get_subcommands().empty()) return command->run();
  }
  return kExitUsage;
}

}  // namespace rekindle::cli
