#pragma once

#include <string>
#include <string_view>

namespace ingot::test {

/// SHA-256 of `bytes` in lower-case hexadecimal. Source: FIPS 180-4.
std::string sha256(std::string_view bytes);

}  // namespace ingot::test
