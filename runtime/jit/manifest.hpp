#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::jit {

/// Everything that a cubin is a function of, readable, one field a line in a fixed order. Paths,
/// times, host and user names, environment variables and device numbers are not among it.
struct Manifest {
  static constexpr int kSchema = 1;

  int schema = kSchema;
  std::string family;
  std::string arch;
  CompilerIdentity compiler;
  std::vector<std::string> options;
  std::string source_digest;  ///< of the template with all it includes
  std::vector<ParamValue> params;

  /// schema 1 / family … / arch … / compiler … / compiler-build … / option … / template … /
  /// param int TILE_KV 64
  std::string text() const;
  /// The reverse. Error: corrupt.
  [[nodiscard]] static Result<Manifest> parse(std::string_view text);

  /// 32 hexadecimal digits over all fields but the compiler's: equal for one kernel however old
  /// the compiler.
  std::string kernel_key() const;
  /// 16 hexadecimal digits over the compiler's fields.
  std::string compiler_key() const;
  Variant variant() const { return {family, params}; }

  bool operator==(const Manifest&) const = default;
};

Manifest manifest_of(const SourceBundle& bundle, const Variant& variant, const std::string& arch,
                     const CompilerIdentity& compiler);

/// One sentence per field that differs: "param NSPLIT: wanted 8, the entry has 4".
std::vector<std::string> differences(const Manifest& wanted, const Manifest& entry);

}  // namespace ingot::jit
