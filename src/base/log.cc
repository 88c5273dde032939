#include "src/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "src/base/mutex.h"

namespace rekindle {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    // Not registered with spdlog: a host program's own registry and default logger stay untouched.
    auto made =
        std::make_shared<spdlog::logger>("rekindle", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("rekindle: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return invalid_argument("log level '" + std::string(name) +
                          "' is not one of debug, info, warning, error, off");
}

void set_log_level(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err, spdlog::level::off};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_debug(std::string_view message) {
  const ForkHold hold;  // the sink has a lock
  logger().debug("{}", message);
}

void log_info(std::string_view message) {
  const ForkHold hold;
  logger().info("{}", message);
}

void log_warning(std::string_view message) {
  const ForkHold hold;
  logger().warn("warning: {}", message);
}

void log_error(std::string_view message) {
  const ForkHold hold;
  logger().error("error: {}", message);
}

}  // namespace rekindle
