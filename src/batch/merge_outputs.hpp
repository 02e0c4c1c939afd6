#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/file_descriptor.hpp"
#include "src/batch/batch_request.hpp"
#include "src/batch/line_reader.hpp"

namespace ingot {

/// Puts the outputs of several machines together, in the order of the input, once every line of it
/// has its one answer. Keeps some 80 bytes a line.
class OutputMerge {
 public:
  /// Takes in a file of answers. Errors: not_found, io; corrupt for a line that is no answer.
  [[nodiscard]] Result<void> add(const std::filesystem::path& file);

  struct Counts {
    std::int64_t lines = 0;
    std::int64_t failed = 0;
    /// What is to be said of lines whose custom_id an earlier line has: they are answered where the
    /// two were in different shards. Empty: there are none.
    std::string repeated;
  };
  using Write = std::function<Result<void>(std::string_view lines)>;
  /// Checks that the answers are those of the input, and writes them. Errors: corrupt where lines
  /// have no answer, or two, or one of another custom_id, which are named, and nothing is written;
  /// io; those of `write`.
  /// @param fills_template  the lines are fields for one
  [[nodiscard]] Result<Counts> write(LineReader& input, BatchFormat format, bool fills_template,
                                     const Write& write);

 private:
  struct Place {
    std::int64_t line = 0;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    std::uint64_t id = 0;  ///< hash of the custom_id; 0: it has none
    int file = 0;
    bool failed = false;
  };
  /// Returns Counts::repeated.
  Result<std::string> check(LineReader& input, BatchFormat format, bool fills_template) const;

  std::vector<std::filesystem::path> names_;
  std::vector<FileDescriptor> files_;
  std::vector<Place> places_;
};

}  // namespace ingot
