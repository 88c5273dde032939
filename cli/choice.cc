#include "cli/choice.h"

#include <algorithm>

namespace rekindle::cli {

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& help) {
  std::string type;
  for (const std::string& choice : choices) type += (type.empty() ? "" : "|") + choice;
  const auto check = [choices, type](const std::string& word) {
    const bool known = std::ranges::find(choices, word) != choices.end();
    return known ? std::string() : "'" + word + "' is not one of " + type;
  };
  return app.add_option(name, target, help)->type_name(type)->check(CLI::Validator(check, ""));
}

}  // namespace rekindle::cli
