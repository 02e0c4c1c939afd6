#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// One zstd frame that knows its content's size. `level` as zstd's: 3 is fast, 19 small.
std::string zstd_compress(std::string_view bytes, int level);

/// The content of one whole frame. Error: corrupt when it is damaged, has bytes behind it, or says
/// that it holds more than `most_bytes`.
[[nodiscard]] Result<std::string> zstd_decompress(std::string_view frame, std::size_t most_bytes);

}  // namespace ingot
