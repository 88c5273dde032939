#include "cli/command.h"

namespace rekindle::cli {
namespace {

REKINDLE_NOUN(completion, "Scripts that let a shell complete verbs, flags and entry ids");

}  // namespace
}  // namespace rekindle::cli
