#include "cli/pinning.h"

namespace rekindle::cli {
namespace {

class CachePin : public Pinning {
 public:
  CachePin() : Pinning(&ExportCache::pin, "pinned") {}
};

REKINDLE_COMMAND(cache, pin, "Keep entries: no policy and no size limit removes them", CachePin);

}  // namespace
}  // namespace rekindle::cli
