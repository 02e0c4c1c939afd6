#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// XXH3, 128 bits, in its canonical (big-endian) byte order: equal on every machine.
/// Not cryptographic: whoever relies on equality compares the digested text too.
struct Digest {
  std::array<std::uint8_t, 16> bytes{};

  std::string hex() const;
  auto operator<=>(const Digest&) const = default;
};

Digest digest_of(std::string_view bytes);

/// Digest of a whole file, read in pieces. Errors: not_found, io.
[[nodiscard]] Result<Digest> digest_file(const std::filesystem::path& file);

}  // namespace ingot
