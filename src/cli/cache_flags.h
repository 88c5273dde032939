// What every `rekindle cache` command shares: --dir, --json, and opening the directory they name.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "export_cache/export_cache.h"
#include "src/base/result.h"

namespace rekindle::cli {

struct CacheFlags {
  std::string dir;
  bool json = false;

  void declare(CLI::App& app);
  // kNotFound, with the remedy, when the directory does not exist: commands never create one.
  Result<std::unique_ptr<ExportCache>> open(CacheMode mode) const;
};

using Json = nlohmann::ordered_json;

// One entry as the commands print it: the same names in `ls` and `inspect`.
Json entry_json(const EntryInfo& info);
// A value of the entry's meta as text; empty when it is absent.
std::string meta_text(const EntryInfo& info, const std::string& name);
void print_json(const Json& root);

}  // namespace rekindle::cli
