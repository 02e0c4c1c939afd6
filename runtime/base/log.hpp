#pragma once

#include <fmt/core.h>

#include <string_view>

/// Diagnostics for people, on standard error, one line each. Results never go through here.
/// Any thread may log; a line is written whole. Whatever outside text it holds is made printable
/// here (printable_message), so that no file name reaches a terminal as it is.
namespace ingot::log {

enum class Level { debug, info, warn, error, off };

/// Lines below `level` are dropped. The default is `info`.
void set_level(Level level);

/// Every later line of the calling thread carries "rank N". Call once in each rank thread.
void set_thread_rank(int tp_rank);

void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ingot::log
