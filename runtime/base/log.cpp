#include "runtime/base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "runtime/base/printable.hpp"

namespace ingot::log {
namespace {

// spdlog's own registry holds the logger; the rank is a property of a thread, not of the program.
thread_local int thread_rank = -1;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("ingot",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("ingot: %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}

void set_thread_rank(int tp_rank) {
  thread_rank = tp_rank;
}

void write(Level level, std::string_view line) {
  if (!logger().should_log(to_spdlog(level))) return;
  const std::string shown = printable_message(line);
  const std::string_view prefix = level == Level::error  ? "error: "
                                  : level == Level::warn ? "warning: "
                                                         : "";
  if (thread_rank < 0) {
    logger().log(to_spdlog(level), "{}{}", prefix, shown);
  } else {
    logger().log(to_spdlog(level), "rank {}: {}{}", thread_rank, prefix, shown);
  }
}

}  // namespace ingot::log
