#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_dir.hpp"

namespace ingot::test {

/// A synthetic model of tests/golden/checkpoint/NAME.json (tiny: 17 MB, one rank; tiny-tp: up to
/// eight), seed 1; written once for a test program.
const std::filesystem::path& weight_model(const std::string& name);

/// Bytes that stand somewhere in a tensor instead of its own.
struct Damage {
  std::string tensor;
  std::size_t at;
  std::string bytes;
};

/// A copy of weight_model("tiny") with some damage.
class DamagedModel {
 public:
  explicit DamagedModel(const std::vector<Damage>& all);
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempDir folder_;
};

}  // namespace ingot::test
