#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// More output of a command than this is an error.
inline constexpr std::size_t kMostFilterBytes = std::size_t{1} << 20;

/// Runs a shell's command line with `input` on its standard input and returns what it writes to its
/// standard output; its standard error is ours. It has a process group of its own, which is killed
/// where the wait ends early.
/// @param wake_fd  once readable, `go_on` says whether to wait on; it must leave it unreadable then
/// Errors: io where it cannot be run, fails (with its status), writes too much or is stopped.
[[nodiscard]] Result<std::string> run_filter(const std::string& command, std::string input,
                                             int wake_fd, const std::function<bool()>& go_on);

}  // namespace ingot
