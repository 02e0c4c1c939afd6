#pragma once

#include <string>

namespace ingot {

/// Why the system refused to open or read a file, and what its user can do: "No such file or
/// directory; check the path".
/// @param error  an errno
std::string why_not_read(int error);

/// The same of making or writing one.
std::string why_not_written(int error);

}  // namespace ingot
