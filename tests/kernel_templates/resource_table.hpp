#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "kernel_templates/family.hpp"
#include "runtime/jit/compiler.hpp"

namespace ingot::test {

/// What every candidate of one family took when it was last compiled as a whole, as committed in
/// tests/golden/kernel_templates/<stem>.tsv.
struct ResourceTable {
  struct Row {
    jit::Resources resources;
    double seconds = 0;
  };
  std::string digest;               ///< of the template and of the candidates
  std::string compiler;             ///< version and build
  std::map<std::string, Row> rows;  ///< by "sm_90a rms_norm HIDDEN=4096 …"

  /// An empty table when there is no such file.
  static ResourceTable read(const std::filesystem::path& file);
  void write(const std::filesystem::path& file) const;
};

std::filesystem::path resource_table_path(const std::string& stem);

}  // namespace ingot::test
