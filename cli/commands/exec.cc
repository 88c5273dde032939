#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/choice.h"
#include "cli/command.h"

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
  std::string calls_, level_, start_, fallback_, log_;
  Setting settings_[4] = {
      {"--budget", "REKINDLE_MEMORY_BUDGET", "BYTES", "What a step's activations may take: 2GiB, or 50%"},
      {"--plan", "REKINDLE_MEMORY_PLAN", "FILE",
       "What the backward computes again, as an account's save_plan() writes it"},
      {"--dir", "REKINDLE_CACHE_DIR", "DIR", "The cache directory"},
      {"--cache", "REKINDLE_CACHE", "MODE",
       "How the cache is used: on, off, readonly, refresh, strict, verify"},
  };
};

REKINDLE_NOUN(exec, "Run a training program with settings for its models", Exec);

}  // namespace
}  // namespace rekindle::cli
