#include "export_cache/tiers/remote_tier.h"

namespace rekindle {

const char* space_name(RemoteTier::Space space) {
  return space == RemoteTier::Space::kManifests ? "ac" : "cas";
}

Registry<RemoteTierFactory>& remote_tiers() {
  static Registry<RemoteTierFactory> registry;
  return registry;
}

}  // namespace rekindle
