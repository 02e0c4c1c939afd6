#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::bench {

/// A folder of compiled variants, so that a bench compiles nothing on the card's time. A file is
/// named by variant, architecture and the digest of its template: a stale one is never used.
class CubinFolder {
 public:
  CubinFolder(std::filesystem::path folder, std::string arch);

  /// Error: not_found (compile first), io.
  [[nodiscard]] Result<std::vector<std::byte>> load(const jit::Variant& variant) const;

  struct Report {
    int compiled = 0;
    int kept = 0;
    std::vector<std::string> failed;  ///< variant and why: does not compile, or spills
  };
  /// Compiles what is missing, `jobs` at a time; prints a line for each failure to standard error.
  Report fill(jit::Compiler& compiler, const std::vector<jit::Variant>& variants, int jobs) const;

 private:
  std::filesystem::path file_of(const jit::Variant& variant) const;

  std::filesystem::path folder_;
  std::string arch_;
  jit::SourceTree tree_;
};

}  // namespace ingot::bench
