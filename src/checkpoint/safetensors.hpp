#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "src/checkpoint/problems.hpp"

namespace ingot {

/// One tensor of a safetensors file, as its header declares it; offsets are checked.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype{};
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< bytes from the start of the data section
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::uint64_t data_start = 0;           ///< bytes from the start of the file
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
};

using PassedBytes = std::function<void(std::span<const std::byte>)>;

/// Reads the header of a whole safetensors file: 8 bytes of little-endian header length, JSON, then
/// the data section. Touches no byte of data. Checks that names are unique, dtypes known,
/// end - begin = shape × width without overflow, and that the tensors fill the data section
/// exactly: no overlap, no gap, nothing behind.
/// @param origin the file's name, for messages
/// @param passed is told, every megabyte, what of the header has been read
/// @return the header, or nullopt with at least one problem added (corrupt, unsupported). After
///         the first structural mistake reading stops; mistakes of single tensors are all listed.
/// Source: the safetensors format description; header limit 100,000,000 bytes as in its library.
std::optional<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file,
                                                         std::string_view origin,
                                                         Problems& problems,
                                                         const PassedBytes& passed = {});

/// Bytes of a tensor; nullopt on overflow or a negative size.
std::optional<std::uint64_t> tensor_bytes(std::span<const std::int64_t> shape, Dtype dtype);

/// "[2048, 4096]"
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace ingot
