// Commands of the `rekindle` program: one class a command, registered beside its code.
//
//   commands/<noun>_<verb>.cc    the class and, at its foot, REKINDLE_COMMAND(noun, verb, "summary", Class)
//   commands/<noun>_<verb>.md    its help page, compiled in
//   commands/<noun>.cc           REKINDLE_NOUN(noun, "summary"): what the verbs are about
//
// A noun that is a command itself has its class in commands/<noun>.cc, which ends in
// REKINDLE_NOUN_COMMAND(noun, "summary", Class).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/registry.h"
#include "src/base/result.h"

namespace rekindle::cli {

// Documented in docs/cli.md; scripts rely on them.
enum ExitCode : int {
  kExitOk = 0,
  kExitProblem = 1,  // not found, refused, or the cache cannot be read
  kExitUsage = 64,   // the command line is wrong; as in sysexits.h, so that no command's own codes collide
};

class Command {
 public:
  virtual ~Command() = default;
  // Adds options to `app`. Their targets are members: they are filled before run.
  virtual void declare(CLI::App& app) = 0;
  // Results go to stdout, everything else to stderr.
  virtual int run() = 0;
};

struct CommandInfo {
  std::string noun;
  std::string verb;     // empty: the noun itself
  std::string summary;  // empty: not listed in the help
  // Null: a noun that is no command.
  std::function<std::unique_ptr<Command>()> make;
};

// By "<noun>_<verb>", or "<noun>".
Registry<CommandInfo>& commands();
// The text of commands/<name>.md; empty when there is none.
std::string_view help_page(std::string_view name);
// Prints "rekindle: message" to stderr; returns `code`.
int fail(const Error& error, int code = kExitProblem);

#define REKINDLE_COMMAND(noun, verb, summary, Class)                                                     \
  static const bool rekindle_registered_##noun##_##verb = [] {                                           \
    ::rekindle::cli::commands().add(                                                                     \
        #noun "_" #verb, {#noun, #verb, summary, [] {                                                    \
                            return std::unique_ptr<::rekindle::cli::Command>(std::make_unique<Class>()); \
                          }});                                                                           \
    return true;                                                                                         \
  }()

#define REKINDLE_NOUN(noun, summary)                                       \
  static const bool rekindle_registered_##noun = [] {                      \
    ::rekindle::cli::commands().add(#noun, {#noun, "", summary, nullptr}); \
    return true;                                                           \
  }()

#define REKINDLE_NOUN_COMMAND(noun, summary, Class)                                                    \
  static const bool rekindle_registered_##noun = [] {                                                  \
    ::rekindle::cli::commands().add(                                                                   \
        #noun, {#noun, "", summary,                                                                    \
                [] { return std::unique_ptr<::rekindle::cli::Command>(std::make_unique<Class>()); }}); \
    return true;                                                                                       \
  }()

}  // namespace rekindle::cli
