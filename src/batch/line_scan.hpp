#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// Up to `most` bytes from a place of an open file; nullopt where that fails (errno says why).
std::optional<std::string_view> read_at(int fd, std::int64_t offset, std::size_t most,
                                        std::string& buffer);
bool write_whole(int fd, std::string_view bytes);

/// Hands on each line that has an end, without its LF, and where it begins.
/// Returns where the last of them ends: what is behind it was torn. Errors: io, and those of
/// `take`, which ends the scan.
using TakeLine = std::function<Result<void>(std::string_view line, std::int64_t offset)>;
[[nodiscard]] Result<std::int64_t> scan_lines(int fd, const std::filesystem::path& file,
                                              const TakeLine& take);

}  // namespace ingot
