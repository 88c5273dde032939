#include "cli/command.h"

#include <cstdio>
#include <utility>

namespace rekindle::cli {
namespace {

constexpr std::pair<std::string_view, std::string_view> kPages[] = {
#include "pages.inc"
};

}  // namespace

Registry<CommandInfo>& commands() {
  static Registry<CommandInfo> registry;
  return registry;
}

std::string_view help_page(std::string_view name) {
  for (const auto& [page, text] : kPages) {
    if (page == name) return text;
  }
  return {};
}

int fail(const Error& error, int code) {
  std::fprintf(stderr, "rekindle: %s\n", error.message.c_str());
  return code;
}

}  // namespace rekindle::cli
