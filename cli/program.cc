#include "cli/program.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace rekindle::cli {
namespace {

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

std::string summary_of(const std::string& noun) {
  const CommandInfo* const info = commands().find(noun);
  return info == nullptr ? std::string() : info->summary;
}

// The words of a command line from the last to the first, as CLI11 parses them. `--` before the program of
// `exec` is left out: CLI11 would take what follows it for arguments of its own.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "exec") {
    const CLI::App* const exec = app.get_subcommand("exec");
    std::size_t i = 1;
    while (i < words.size() && words[i] != "--" && words[i].starts_with('-')) {
      const CLI::Option* const option = exec->get_option_no_throw(words[i]);
      i += option != nullptr && option->get_expected_min() > 0 ? 2 : 1;
    }
    if (i < words.size() && words[i] == "--") words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::ranges::reverse(words);
  return words;
}

}  // namespace

Program::Program()
    : app_("Rekindle: training graphs, exported once and rekindled from a cache.", "rekindle") {
  app_.set_version_flag("--version", std::string("rekindle ") + REKINDLE_VERSION);
  app_.require_subcommand(1);
  std::map<std::string, CLI::App*> nouns;
  for (const auto& [name, info] : commands()) {
    CLI::App*& noun = nouns[info.noun];
    if (noun == nullptr) noun = app_.add_subcommand(info.noun, summary_of(info.noun))->require_subcommand(1);
    if (info.make == nullptr) continue;
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
    app_.parse(words_of(app_, argc, argv));
  } catch (const CLI::ParseError& e) {
    return app_.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  for (const auto& [verb, command] : verbs_) {
    if (verb->parsed() && verb->get_subcommands().empty()) return command->run();
  }
  return kExitUsage;
}

}  // namespace rekindle::cli
