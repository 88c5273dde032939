// The process-wide logger: spdlog to stderr, level from set_log_level (REKINDLE_LOG, default "info").
#pragma once

#include <string_view>

#include "src/base/result.h"

namespace rekindle {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// kInvalidArgument unless `name` is debug, info, warning, error or off.
Result<LogLevel> parse_log_level(std::string_view name);
void set_log_level(LogLevel level);

// One line each; thread-safe. `message` is printed as it is, without formatting.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
// Logs what must not be missed, such as an entry of the cache that is not what an export makes.
void log_error(std::string_view message);

}  // namespace rekindle
