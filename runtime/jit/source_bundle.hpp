#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/jit/compiler.hpp"

namespace ingot::jit {

/// A template with everything that it includes, directly or not: all that the compiler will see.
struct SourceBundle {
  SourceFile main;
  std::vector<SourceFile> headers;  ///< by name, ascending; each once
  /// Digest of all names and texts. Equal digests mean equal device code before the parameters.
  Digest digest;
};

/// Device source files by the literal path that #include gives, from the templates' root.
/// Immutable; any thread may read.
class SourceTree {
 public:
  SourceTree() = default;
  explicit SourceTree(std::vector<SourceFile> files);

  /// Reads every .cuh, .h and .def file under `root`, for work on templates without rebuilding.
  /// Errors: not_found, io.
  [[nodiscard]] static Result<SourceTree> read_directory(const std::filesystem::path& root);

  const std::string* find(std::string_view name) const;
  std::vector<std::string> names() const;

  /// Follows the includes of `name`. An include that is not a literal path of a file in this tree
  /// (a system header, a path with "..", a macro) is refused: the digest would not be exact.
  /// Includes in comments do not count; those in a branch that the preprocessor drops do.
  /// Errors: not_found, invalid_argument.
  [[nodiscard]] Result<SourceBundle> bundle(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> files_;
};

/// The names in the `#include "name"` lines of `text`, in order, with repetitions.
/// Error: invalid_argument for every other kind of inclusion; `name` is for the message.
[[nodiscard]] Result<std::vector<std::string>> includes_of(std::string_view text,
                                                           std::string_view name);

}  // namespace ingot::jit
