#include "cli/pinning.h"

namespace rekindle::cli {
namespace {

class CacheUnpin : public Pinning {
 public:
  CacheUnpin() : Pinning(&ExportCache::unpin, "unpinned") {}
};

REKINDLE_COMMAND(cache, unpin, "Let entries go again", CacheUnpin);

}  // namespace
}  // namespace rekindle::cli
