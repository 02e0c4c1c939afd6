#pragma once

#include <filesystem>

namespace ingot::test {

/// A folder with a synthetic model of 17 MB (tests/golden/checkpoint/tiny.json, seed 1) and the
/// small tokenizer; written once for a test program, readable for everyone.
const std::filesystem::path& tiny_model();

}  // namespace ingot::test
