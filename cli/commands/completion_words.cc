#include <cstdio>

#include "cli/command.h"
#include "cli/completion.h"

namespace rekindle::cli {
namespace {

// What the completion scripts call.
class CompletionWords : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("words", words_, "Words of the command line, the last one incomplete");
  }

  int run() override {
    for (const std::string& word : completions(words_)) std::puts(word.c_str());
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
};

REKINDLE_COMMAND(completion, words, "", CompletionWords);

}  // namespace
}  // namespace rekindle::cli
