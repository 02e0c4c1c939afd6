#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/batch/batch_answer.hpp"
#include "src/batch/batch_request.hpp"
#include "src/batch/done_lines.hpp"
#include "src/batch/input_shard.hpp"
#include "src/batch/line_reader.hpp"

namespace ingot {

/// How a job reads its input, which is what its answers are known by.
struct InputReading {
  std::string name;  ///< of the input, for messages
  BatchFormat format = BatchFormat::jsonl;
  bool fills_template = false;
  InputShard shard = {};
};

/// What an earlier run wrote, compared with the input: a run may go on with it only where every
/// line of it could stand in the output of a run in one piece. Each is known by the number of its
/// line and by its custom_id, so an output of another input, of another shard, with answers twice,
/// or with an answer to a custom_id that an earlier line has, is refused.
/// Answers to lines of plain text have no other name than their number. Memory: 32 bytes a line
/// until they are compared.
class EarlierOutput {
 public:
  /// @param retry_failed  lines that failed are answered again: they are not among those done, and
  ///                      may have been mended since
  EarlierOutput(std::filesystem::path file, bool retry_failed)
      : file_(std::move(file)), retry_failed_(retry_failed) {}

  /// Reads the whole lines of the open file. Errors: io; corrupt for a line that is no answer.
  [[nodiscard]] Result<void> read(int fd);
  bool empty() const { return answers_.empty(); }
  /// The last line of the input that there is an answer to.
  std::int64_t last_line() const { return last_line_; }

  /// Compares with the input, which is read up to the last of those lines.
  /// Errors: io; invalid_argument, naming the line of the file, its custom_id and what to do.
  [[nodiscard]] Result<DoneLines> compare(int fd, LineReader& input, const InputReading& reading);

 private:
  /// A line of the file.
  struct Answer {
    std::int64_t line = 0;  ///< of the input
    std::uint64_t id = 0;   ///< hash of the custom_id; 0: it has none
    std::int64_t number = 0;
    bool failed = false;
    bool repeats = false;  ///< it failed as its custom_id is an earlier line's
  };
  Unexpected refuse(int fd, const Answer& answer, std::string_view why) const;
  Result<void> check_numbers(int fd, const InputReading& reading);
  Result<void> check_line(int fd, const Answer& answer, const std::optional<std::string>& id,
                          bool repeated, const InputReading& reading) const;

  std::filesystem::path file_;
  bool retry_failed_;
  std::int64_t last_line_ = 0;
  std::vector<Answer> answers_;
};

}  // namespace ingot
