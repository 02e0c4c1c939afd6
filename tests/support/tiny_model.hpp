#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>

namespace ingot::test {

/// A folder with a synthetic model of 17 MB (tests/golden/checkpoint/tiny.json, seed 1) and the
/// small tokenizer; written once for a test program, readable for everyone.
const std::filesystem::path& tiny_model();

/// Writes a copy of tiny_model() to `folder`, with some rows of a BF16 matrix of 256 columns filled
/// with one value.
/// @param bits  that value, as BF16
void write_changed_tiny_model(const std::filesystem::path& folder, const std::string& tensor,
                              std::initializer_list<int> rows, std::uint16_t bits);

}  // namespace ingot::test
