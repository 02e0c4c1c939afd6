#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// The results of a job: lines gather in OUT.partial, and commit() renames it to OUT, so that OUT
/// is whole or untouched. A name that is no regular file (`-`, a pipe, a device) is written
/// directly.
class OutputFile {
 public:
  /// Opens OUT.partial, which must not exist yet: it may be what an interrupted run left.
  /// @param input  the job's input; OUT may not be the same file, by whatever name
  /// @param force  an existing OUT, and a left-over OUT.partial, may be replaced
  /// Errors: invalid_argument, not_found; nothing was changed.
  [[nodiscard]] static Result<OutputFile> create(const std::filesystem::path& output,
                                                 const std::filesystem::path& input, bool force);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  /// Appends whole lines. After an error the file ends with the last line that was written whole.
  /// Error: io.
  [[nodiscard]] Result<void> append(std::string_view lines);
  /// Makes the file durable and gives it its name. Error: io; OUT is untouched then.
  [[nodiscard]] Result<void> commit();
  /// Removes OUT.partial: nothing was done.
  void discard();

  /// Where the lines are until commit().
  const std::filesystem::path& partial() const { return partial_; }

 private:
  OutputFile() = default;
  void close();

  std::filesystem::path output_;
  std::filesystem::path partial_;
  int fd_ = -1;
  bool direct_ = false;  ///< no partial file: `-`, a pipe or a device
  bool owns_fd_ = false;
  bool may_replace_ = false;
  std::int64_t written_ = 0;  ///< bytes of whole lines
};

}  // namespace ingot
