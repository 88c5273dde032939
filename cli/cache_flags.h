// What every `rekindle cache` command shares: --dir, --json, and opening the directory they name.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/export_cache.h"
#include "src/base/result.h"

namespace rekindle::cli {

struct CacheFlags {
  std::string dir;
  bool json = false;

  void declare(CLI::App& app);
  // --dir, else the default.
  std::string directory() const;
  // kNotFound, with the remedy, when the directory does not exist: commands never create one.
  Result<std::unique_ptr<ExportCache>> open(CacheMode mode) const;
};

// The ids of the entries that the prefixes name, each once; the Errors of ExportCache::find.
Result<std::vector<Digest>> find_entries(ExportCache& cache, const std::vector<std::string>& prefixes);
// Returns the error that commands give for an entry that is not sound; it says what happens next.
Error corrupt_entry(const Digest& id);
// The verified entry; corrupt_entry() when it is not sound.
Result<Entry> load_entry(ExportCache& cache, const Digest& id);
// A section of it. kNotFound, naming those it has, when there is none of that name.
Result<std::string> section_of(const Entry& entry, const Digest& id, const std::string& name);

using Json = nlohmann::ordered_json;

// One entry as the commands print it: the same names in `ls` and `inspect`.
Json entry_json(const EntryInfo& info);
// The values of an entry's meta as text, parsed once; empty where one is absent.
class MetaText {
 public:
  explicit MetaText(const EntryInfo& info) : meta_(Json::parse(info.meta)) {}  // the store has checked it
  std::string operator[](const std::string& name) const;
  const Json& json() const { return meta_; }

 private:
  Json meta_;
};
void print_json(const Json& root);

}  // namespace rekindle::cli
