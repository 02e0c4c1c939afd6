#pragma once

#include <filesystem>
#include <string_view>

namespace ingot::test {

/// A fresh folder, removed with everything in it when the object goes.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// tests/golden, wherever the tests run from. Source: INGOT_TEST_GOLDEN, else the source tree.
std::filesystem::path golden_dir();

/// The whole file. Throws std::runtime_error when it cannot be read.
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace ingot::test
