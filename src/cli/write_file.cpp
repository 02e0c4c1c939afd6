#include "src/cli/write_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

#include "runtime/base/error.hpp"
#include "runtime/base/why_not.hpp"

namespace ingot {

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
