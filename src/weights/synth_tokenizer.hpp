#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// A file to be written beside a checkpoint.
struct NamedText {
  std::string name;
  std::string text;
};

/// Reads tokenizer.json (decompressed), and tokenizer_config.json and generation_config.json where
/// they lie in the same folder.
/// @param source tokenizer.json, tokenizer.json.zst, or a folder with one of them
/// Errors: not_found, io, corrupt; the message names the file.
[[nodiscard]] Result<std::vector<NamedText>> read_tokenizer_files(
    const std::filesystem::path& source);

}  // namespace ingot
