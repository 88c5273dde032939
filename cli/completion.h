// What may follow on a command line: the answer behind the shells' completion scripts.
#pragma once

#include <string>
#include <vector>

namespace rekindle::cli {

// `words`: what follows the program's name, the last one incomplete and maybe empty. Verbs and flags
// come from the commands themselves; an option or argument of type ID is completed from the cache
// that --dir or the environment names, one of type a|b|c by its choices. Empty where files are
// expected, which the shell knows better.
std::vector<std::string> completions(const std::vector<std::string>& words);

}  // namespace rekindle::cli
