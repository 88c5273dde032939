// Writes files that a command makes, and never one that is there.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "src/base/result.h"

namespace rekindle::cli {

// Makes `path`, and its directory, with what `write` puts into the stream. kInvalidArgument where it is there
// already, kIo where it cannot be written.
Status write_new_file(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace rekindle::cli
