#include "src/cli/write_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

#include "runtime/base/why_not.hpp"

namespace ingot {

Result<void> check_new_file(const std::filesystem::path& path, bool force) {
  std::error_code error;
  if (force || !std::filesystem::is_regular_file(path, error)) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("writing {}: it exists; give --force to replace it, or name another file",
                          path.string()));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw EngineError(ErrorCode::io,
                      fmt::format("writing {}: {}", path.string(), why_not_written(errno)));
  }
}

}  // namespace ingot
