#include <cstdio>

#include "cli/command.h"

namespace rekindle::cli {
namespace {

class CompletionBash : public Command {
 public:
  void declare(CLI::App&) override {}

  // With no answer, readline falls back to files.
  int run() override {
    std::fputs(R"bash(_rekindle() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _rekindle rekindle
)bash",
               stdout);
    return kExitOk;
  }
};

REKINDLE_COMMAND(completion, bash, "Print the script for bash", CompletionBash);

}  // namespace
}  // namespace rekindle::cli
