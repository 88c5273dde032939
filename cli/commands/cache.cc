#include "cli/command.h"

namespace rekindle::cli {
namespace {

REKINDLE_NOUN(cache, "The cache of exported training graphs");

}  // namespace
}  // namespace rekindle::cli
