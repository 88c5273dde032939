#include "cli/pinning.h"

#include <fmt/core.h>

namespace rekindle::cli {

void Pinning::declare(CLI::App& app) {
  app.add_option("id", prefixes_, "Ids of entries, or the starts of them")->required()->type_name("ID");
  flags_.declare(app);
}

int Pinning::run() {
  auto cache = flags_.open(CacheMode::kReadWrite);
  if (!cache.ok()) return fail(cache.error());
  auto ids = find_entries(**cache, prefixes_);
  if (!ids.ok()) return fail(ids.error());
  Json changed = Json::array();
  for (const Digest& id : *ids) {
    if (const Status status = ((**cache).*change_)(id); !status.ok()) return fail(status.error());
    changed.push_back(id.hex());
    if (!flags_.json) fmt::print("{} {}\n", done_, id.hex());
  }
  if (flags_.json) print_json({{"dir", (*cache)->dir()}, {done_, changed}});
  return kExitOk;
}

}  // namespace rekindle::cli
