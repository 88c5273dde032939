#include "cli/completion.h"

#include <algorithm>
#include <sstream>

#include "cli/cache_flags.h"
#include "cli/program.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostIds = 200;

// Where the complete words lead: the verb reached, the directory they name,
// the option that still wants its value.
struct Position {
  const CLI::App* app;
  CacheFlags flags{};
  const CLI::Option* open = nullptr;
};

const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

Position follow(const CLI::App& root, const std::vector<std::string>& words) {
  Position at{.app = &root};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (at.open != nullptr) {
      if (at.open->check_lname("dir")) at.flags.dir = word;
      at.open = nullptr;
    } else if (word.starts_with("--dir=")) {
      at.flags.dir = word.substr(6);
    } else if (word.starts_with('-')) {
      const CLI::Option* option = at.app->get_option_no_throw(word);
      if (option != nullptr && takes_value(*option)) at.open = option;
    } else if (const CLI::App* next = subcommand(*at.app, word); next != nullptr) {
      at.app = next;
    }
  }
  return at;
}

std::vector<std::string> entry_ids(const CacheFlags& flags, const std::string& begin) {
  std::vector<std::string> ids;
  const auto cache = flags.open(CacheMode::kReadOnly);
  if (!cache.ok()) return ids;  // nothing to complete; the command itself will say why
  const auto entries = (*cache)->list();
  if (!entries.ok()) return ids;
  for (const EntryInfo& info : *entries) {
    if (ids.size() < kMostIds) ids.push_back(begin.size() > kIdDigits ? info.id.hex() : short_id(info.id));
  }
  return ids;
}

std::vector<std::string> values_of(const CLI::Option& option, const Position& at, const std::string& begin) {
  const std::string type = option.get_type_name();
  if (type == "ID") return entry_ids(at.flags, begin);
  std::vector<std::string> choices;
  if (type.find('|') == std::string::npos) return choices;
  std::istringstream parts(type);
  for (std::string choice; std::getline(parts, choice, '|');) choices.push_back(choice);
  return choices;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::vector<std::string> next_words(const Position& at, const std::string& begin) {
  if (at.open != nullptr) return values_of(*at.open, at, begin);
  if (begin.starts_with('-')) return flags_of(*at.app);
  std::vector<std::string> words;
  for (const CLI::App* verb : at.app->get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) words.push_back(verb->get_name());
  }
  for (const CLI::Option* option : at.app->get_options()) {
    if (!option->get_positional()) continue;
    for (std::string& value : values_of(*option, at, begin)) words.push_back(std::move(value));
  }
  return words;
}

}  // namespace

std::vector<std::string> completions(const std::vector<std::string>& words) {
  const Program program;
  const std::string begin = words.empty() ? std::string() : words.back();
  std::vector<std::string> found = next_words(follow(program.tree(), words), begin);
  std::erase_if(found, [&](const std::string& word) { return !word.starts_with(begin); });
  std::ranges::sort(found);
  return found;
}

}  // namespace rekindle::cli
