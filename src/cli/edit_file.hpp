#pragma once

#include <functional>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// Lets the user edit a text in a program, which is a shell's command line that gets a file's name
/// behind it ("vi", "code --wait"). Waits for it; it has the terminal meanwhile, and a process
/// group of its own, with which it stops and goes on as one job with us. The line's end that an
/// editor puts behind the last line is not a part of the text.
/// @param wake_fd   once readable, `ended_by` says which signal asks us to end, or 0 to wait on; it
///                  must leave it unreadable then. The editor gets the signal, too, and is killed
///                  where it does not end within half a second
/// Errors: not_found where no program is named; io where it cannot be run, fails or is ended.
[[nodiscard]] Result<std::string> edit_in_program(const std::string& program,
                                                  const std::string& text, int wake_fd,
                                                  const std::function<int()>& ended_by);

}  // namespace ingot
