#include <cstdio>

#include "cli/command.h"

namespace rekindle::cli {
namespace {

class CompletionZsh : public Command {
 public:
  void declare(CLI::App&) override {}

  // `#compdef` serves a file in $fpath, the last line one that is sourced.
  int run() override {
    std::fputs(R"zsh(#compdef rekindle
_rekindle() {
  local -a found
  found=(${(f)"$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
if [[ "$funcstack[1]" == _rekindle ]]; then _rekindle "$@"; else compdef _rekindle rekindle; fi
)zsh",
               stdout);
    return kExitOk;
  }
};

REKINDLE_COMMAND(completion, zsh, "Print the script for zsh", CompletionZsh);

}  // namespace
}  // namespace rekindle::cli
