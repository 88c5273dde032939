// An option that takes one of a few words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rekindle::cli {

// Its type in the help, and what completion offers, is "a|b|c". Any other word is a wrong command line.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& help);

}  // namespace rekindle::cli
