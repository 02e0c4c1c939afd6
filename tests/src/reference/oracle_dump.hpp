#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/token.hpp"

namespace ingot::test {

/// A tensor of an oracle dump: floats, or integers as floats (ids are small).
struct DumpTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  std::int64_t rows() const { return shape.empty() ? 0 : shape[0]; }
  /// Values in a row: the product of the other dims.
  std::size_t width() const;
  const float* row(std::int64_t index) const {
    return values.data() + static_cast<std::size_t>(index) * width();
  }
};

/// The intermediates of one prompt, made by tools/make_reference_goldens.py: the whole dump, or
/// chosen layers of which most tensors hold the rows `rows` only.
class OracleDump {
 public:
  /// @param file  safetensors, or safetensors in zstd (.zst)
  explicit OracleDump(const std::filesystem::path& file);

  const DumpTensor* find(const std::string& name) const;
  /// Throws std::runtime_error when there is none.
  const DumpTensor& at(const std::string& name) const;
  /// Ids of the prompt.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Prompt positions of the rows that per-token tensors hold.
  const std::vector<std::int64_t>& rows() const { return rows_; }

 private:
  std::map<std::string, DumpTensor> tensors_;
  std::vector<TokenId> tokens_;
  std::vector<std::int64_t> rows_;
};

/// zstd frame → bytes.
std::string decompress(const std::string& compressed);

}  // namespace ingot::test
