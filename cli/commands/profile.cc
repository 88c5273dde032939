#include "cli/command.h"

namespace rekindle::cli {
namespace {

REKINDLE_NOUN(profile, "Where the time of a training step goes");

}  // namespace
}  // namespace rekindle::cli
