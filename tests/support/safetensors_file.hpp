#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace ingot::test {

/// A safetensors file taken apart, so that a test can damage a part and put it together again.
struct SafetensorsFile {
  nlohmann::ordered_json header;
  std::string data;

  static SafetensorsFile read(const std::filesystem::path& path);
  void write(const std::filesystem::path& path) const;

  /// Takes out a tensor with its bytes.
  void remove(const std::string& name);
  /// Appends a tensor; `bytes` fit its dtype and shape.
  void add(const std::string& name, const std::string& dtype, const nlohmann::json& shape,
           const std::string& bytes);
};

}  // namespace ingot::test
