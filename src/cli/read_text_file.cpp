#include "src/cli/read_text_file.hpp"

#include <fmt/core.h>

#include <fstream>

namespace ingot {
namespace {

Unexpected too_long(const std::filesystem::path& file, std::size_t max_bytes) {
  return fail(ErrorCode::invalid_argument,
              fmt::format("reading {}: it is longer than {} bytes", file.string(), max_bytes));
}

}  // namespace

Result<void> check_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return fail(ErrorCode::not_found, fmt::format("reading {}: no such file", file.string()));
  }
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("reading {}: {}", file.string(), error.message()));
  }
  if (std::filesystem::is_directory(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: this is a folder, not a file", file.string()));
  }
  if (std::filesystem::is_regular_file(status) &&
      std::filesystem::file_size(file, error) > max_bytes) {
    return too_long(file, max_bytes);
  }
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  if (auto readable = check_text_file(file, max_bytes); !readable) {
    return Unexpected(readable.error());
  }
  // In pieces: the length of a pipe is not known beforehand.
  std::ifstream in(file, std::ios::binary);
  std::string text;
  char piece[1 << 16];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > max_bytes) return too_long(file, max_bytes);
  }
  if (!in.eof()) {
    return fail(ErrorCode::io, fmt::format("reading {}: it cannot be read", file.string()));
  }
  return text;
}

}  // namespace ingot
