#include "runtime/base/why_not.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace ingot {
namespace {

/// What helps whatever was attempted; empty if that depends on it.
std::string_view common_remedy(int error) {
  switch (error) {
    case ELOOP:
      return "its symbolic links lead round in a circle: mend them, or name the file itself";
    case ENAMETOOLONG:
      return "give a shorter name";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENOMEM:
      return "free memory";
    case EIO:
    case ESTALE:
      return "check the disk, or try again";
    case ENXIO:
    case ENODEV:
      return "name a regular file";
    default:
      return {};
  }
}

std::string_view read_remedy(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    case EACCES:
    case EPERM:
      return "make it readable, or run as a user who may read it";
    case EISDIR:
      return "name a file";
    default:
      return "name a file that can be read";
  }
}

std::string_view write_remedy(int error) {
  switch (error) {
    case ENOENT:
      return "make its folder first, or name another place";
    case ENOSPC:
    case EDQUOT:
      return "free space, or name a place on another disk";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f), or name a place on another disk";
    default:
      return "name a place that can be written";
  }
}

std::string with_remedy(int error, std::string_view otherwise) {
  const std::string_view common = common_remedy(error);
  return fmt::format("{}; {}", std::strerror(error), common.empty() ? otherwise : common);
}

}  // namespace

std::string why_not_read(int error) {
  return with_remedy(error, read_remedy(error));
}

std::string why_not_written(int error) {
  return with_remedy(error, write_remedy(error));
}

}  // namespace ingot
