#pragma once

#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// Lets the user edit a text in a program, which is a shell's command line that gets a file's name
/// behind it ("vi", "code --wait"). Waits for it; it has the terminal meanwhile.
/// Errors: not_found where no program is named; io where it cannot be run or fails.
[[nodiscard]] Result<std::string> edit_in_program(const std::string& program,
                                                  const std::string& text);

}  // namespace ingot
