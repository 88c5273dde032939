#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cli/choice.h"
#include "cli/command.h"
#include "export_cache/units.h"

namespace rekindle::cli {
namespace {

// As a shell has them; documented in docs/cli.md.
enum ExecCode : int { kCannotRun = 126, kNotFound = 127 };

// An option of `exec`, and the variable that it sets for the program.
struct Setting {
  const char* option;
  const char* variable;
  const char* type;
  const char* help;
  std::string value{};
};

// What is wrong with the value of an option, as the program would say it; empty: nothing.
std::string wrong_budget(const std::string& text) {
  double share = 0;
  const bool is_percent = text.ends_with('%');
  const char* const end = text.data() + text.size() - (is_percent ? 1 : 0);
  const auto [stop, error] = std::from_chars(text.data(), end, share);
  const bool is_number = error == std::errc() && stop == end;
  if (is_number && share > 0 && share <= (is_percent ? 100 : 1)) return "";
  const bool is_fraction = is_number && text.find_first_not_of("0123456789") != std::string::npos;  // as 2.0
  const auto bytes = parse_size(text);
  if (!is_percent && !is_fraction && bytes.ok() && *bytes > 0) return "";
  return "'" + text + "' is neither bytes, as 2GiB, nor a share above 0, up to 1, as 0.5 or 50%";
}

std::string wrong_calls(const std::string& text) {
  const char* place = text.data();
  const char* const end = place + text.size();
  while (place != end) {
    std::uint64_t call = 0;
    const auto [stop, error] = std::from_chars(place, end, call);
    if (error != std::errc() || call == 0 || (stop != end && (*stop != ',' || stop + 1 == end)))
      return "'" + text + "' is no list of calls, 1 or more, such as 1,100";
    place = stop == end ? end : stop + 1;
  }
  return "";
}

std::string wrong_mode(const std::string& text) {
  constexpr std::array kModes{"on", "off", "readonly", "refresh", "strict", "verify"};
  constexpr std::string_view kShare = "verify:1/";
  if (std::ranges::find(kModes, text) != kModes.end()) return "";
  const std::string_view number =
      text.starts_with(kShare) ? std::string_view(text).substr(kShare.size()) : "";
  const bool is_share = !number.empty() && number.size() <= 9 && number.front() != '0' &&
                        number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_share ? ""
                  : "'" + text + "' is not one of on, off, readonly, refresh, strict, verify, verify:1/N";
}

class Exec : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    app.prefix_command();  // what follows the first word that is no option is the program's
    app.add_flag("--memory", memory_,
                 "Print what each model's step takes of memory, before its second call (or --at)");
    app.add_option("--at", calls_, "The calls before which it is printed, such as 1,100")->type_name("CALLS");
    for (Setting& setting : settings_)
      app.add_option(setting.option, setting.value, setting.help)->type_name(setting.type);
    app.get_option("--budget")->check(CLI::Validator(wrong_budget, ""));
    app.get_option("--plan")->check(CLI::ExistingFile);
    app.get_option("--at")->check(CLI::Validator(wrong_calls, ""));
    app.add_option("--cache", cache_,
                   "How the cache is used; verify:1/N makes the graph of one hit of N again")
        ->type_name("on|off|readonly|refresh|strict|verify")
        ->check(CLI::Validator(wrong_mode, ""));
    add_choice(app, "--level", level_, {"0", "1", "2"}, "What the backward may take longer, for less memory");
    add_choice(app, "--start", start_, {"wait", "background"}, "Whether first calls wait for their graph");
    add_choice(app, "--fallback", fallback_, {"eager", "error"},
               "What a call does that cannot run from a graph");
    add_choice(app, "--log", log_, {"debug", "info", "warning", "error", "off"},
               "Least severe level that is logged");
  }

  int run() override {
    std::vector<std::string> command = app_->remaining();
    if (command.empty() || command.front().starts_with('-')) {
      const std::string what = command.empty() ? "takes a program" : "has no option " + command.front();
      return fail(invalid_argument("exec " + what + ": rekindle exec [OPTIONS] PROGRAM [ARGUMENTS...]"),
                  kExitUsage);
    }
    if (command.front().ends_with(".py")) command.insert(command.begin(), "python");
    set_variables();
    return execute(command);
  }

 private:
  void set_variables() const {
    const auto set = [](const char* variable, const std::string& value) {
      if (!value.empty()) setenv(variable, value.c_str(), /*overwrite=*/1);
    };
    for (const Setting& setting : settings_) set(setting.variable, setting.value);
    set("REKINDLE_PRINT_MEMORY",
        memory_ && calls_.empty() ? "2" : calls_);  // at the first there are no gradients
    set("REKINDLE_MEMORY_LEVEL", level_);
    set("REKINDLE_START", start_);
    set("REKINDLE_FALLBACK", fallback_);
    set("REKINDLE_LOG", log_);
    set("REKINDLE_CACHE", cache_);
  }

  // Becomes the program, so that signals and its exit status are its own.
  static int execute(std::vector<std::string>& command) {
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    execvp(words[0], words.data());
    const int code = errno == ENOENT ? kNotFound : kCannotRun;
    return fail(io_error(command.front() + " cannot be run: " + std::strerror(errno)), code);
  }

  CLI::App* app_ = nullptr;
  bool memory_ = false;
  std::string calls_, level_, start_, fallback_, log_, cache_;
  Setting settings_[3] = {
      {"--budget", "REKINDLE_MEMORY_BUDGET", "BYTES", "What a step's activations may take: 2GiB, or 50%"},
      {"--plan", "REKINDLE_MEMORY_PLAN", "FILE",
       "What the backward computes again, as an account's save_plan() writes it"},
      {"--dir", "REKINDLE_CACHE_DIR", "DIR", "The cache directory"},
  };
};

REKINDLE_NOUN_COMMAND(exec, "Run a training program with settings for its models", Exec);

}  // namespace
}  // namespace rekindle::cli
