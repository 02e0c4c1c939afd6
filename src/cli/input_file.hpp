#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

#include "runtime/base/error.hpp"
#include "runtime/base/file_descriptor.hpp"
#include "src/batch/batch_request.hpp"
#include "src/batch/line_reader.hpp"

namespace ingot {

/// The input of a batch, open: a file, or standard input, which is not ours to close.
class InputFile {
 public:
  /// Looks at the first 64 KiB of a file: one that is UTF-16, or plain text with a NUL byte, is
  /// refused; so is a device, which may have no end. Throws EngineError: not_found,
  /// invalid_argument.
  InputFile(const std::filesystem::path& path, BatchFormat format);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Lets the first lines be read twice. Those of a pipe are kept in a file without a name.
  /// @param lines   at the least
  /// @param folder  where there is room
  /// Error: io.
  [[nodiscard]] Result<void> keep_lines(std::int64_t lines, const std::filesystem::path& folder);
  /// A reader from the start on; after keep_lines() once more.
  [[nodiscard]] LineReader lines(std::size_t max_bytes = kMaxLineBytes, int wake_fd = -1);

  /// For messages.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int fd_ = -1;
  bool owned_ = false;
  off_t start_ = -1;     ///< where the input begins; -1: it can be read once
  FileDescriptor kept_;  ///< what was read of a pipe
};

}  // namespace ingot
