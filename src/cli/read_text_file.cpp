#include "src/cli/read_text_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "runtime/base/why_not.hpp"
#include "src/text/text_check.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMaxStreamBytes = std::size_t{32} << 20;

bool is_standard_input(const std::filesystem::path& file) {
  return file == "-";
}

Unexpected too_long(const std::filesystem::path& file, std::size_t max_bytes) {
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("reading {}: it is longer than {} bytes; shorten it, or name another file",
                  file.string(), max_bytes));
}

}  // namespace

Result<void> check_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  if (is_standard_input(file)) return {};
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return fail(ErrorCode::not_found,
                fmt::format("reading {}: no such file; check the path", file.string()));
  }
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("reading {}: {}", file.string(), why_not_read(error.value())));
  }
  if (std::filesystem::is_directory(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: this is a folder; name a file", file.string()));
  }
  if (std::filesystem::is_regular_file(status) &&
      std::filesystem::file_size(file, error) > max_bytes) {
    return too_long(file, max_bytes);
  }
  if (!std::filesystem::is_regular_file(status)) return {};
  // One that cannot be opened is told of where it is read.
  std::ifstream in(file, std::ios::binary);
  std::string begin(kTextBeginBytes, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(in.gcount()));
  return check_not_utf16(begin, file.string());
}

Result<std::string> read_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  if (auto readable = check_text_file(file, max_bytes); !readable) {
    return Unexpected(readable.error());
  }
  const bool standard_input = is_standard_input(file);
  const std::filesystem::path source = standard_input ? "/dev/stdin" : file;
  std::error_code error;
  if (!std::filesystem::is_regular_file(source, error)) {
    max_bytes = std::min(max_bytes, kMaxStreamBytes);
  }
  const std::filesystem::path shown = standard_input ? "standard input" : file;
  // In pieces: the length of a pipe is not known beforehand.
  std::ifstream in(source, std::ios::binary);
  std::string text;
  char piece[1 << 16];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    const auto got = static_cast<std::size_t>(in.gcount());
    if (text.size() + got > max_bytes) return too_long(shown, max_bytes);
    text.append(piece, got);
  }
  if (!in.eof()) {
    return fail(ErrorCode::io, fmt::format("reading {}: it cannot be read; check its permissions "
                                           "and the disk",
                                           shown.string()));
  }
  if (auto checked = check_not_utf16(text, shown.string()); !checked) {
    return Unexpected(checked.error());
  }
  return text;
}

}  // namespace ingot
