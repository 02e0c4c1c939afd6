#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

struct stat;

namespace ingot {

/// The folder that a file is in.
std::filesystem::path folder_of(const std::filesystem::path& file);

/// The results of a job: lines gather in OUT.partial, and commit() renames it to OUT, so that OUT
/// is whole or untouched. A name that is no regular file (`-`, a pipe, a device) is written
/// directly. What was written reaches the disk within seconds. One thread at a time.
class OutputFile {
 public:
  /// What may be there already.
  enum class Existing {
    refuse,
    refuse_alone,  ///< the same for a job that cannot be gone on with, which no message offers then
    replace,       ///< OUT, and a left-over OUT.partial
    resume,        ///< an earlier run of this job: its lines stay, and more are appended
  };

  /// Opens OUT.partial. One that holds lines may be what an interrupted run left, and is refused;
  /// one that another run is writing is refused in any case.
  /// @param input  the job's input; OUT may not be the same file, by whatever name
  /// @param existing  resume: OUT.partial, or OUT, which then becomes OUT.partial until commit()
  /// Errors: invalid_argument, not_found; nothing was changed.
  [[nodiscard]] static Result<OutputFile> create(const std::filesystem::path& output,
                                                 const std::filesystem::path& input,
                                                 Existing existing);

  /// Whether create() would do, as far as can be said without changing anything that stays.
  /// Errors: those of create().
  [[nodiscard]] static Result<void> check(const std::filesystem::path& output,
                                          const std::filesystem::path& input, Existing existing);

  /// The file that a run would go on with: OUT.partial where it is there, else OUT.
  [[nodiscard]] static std::filesystem::path left(const std::filesystem::path& output);
  /// Whether what is gone on with is the file that was looked at, as it was then.
  bool is_unchanged(const struct stat& looked_at) const;

  /// Looks at the lines that are there already, in their order. `keep` gets each, without its LF,
  /// and says whether it stays, and as which line of the input (0: it goes). A last line that was
  /// torn goes; so does what `keep` refuses. Call it once, before append().
  /// Errors: io, and what `keep` reports.
  using Keep = std::function<Result<std::int64_t>(std::string_view line, std::int64_t number)>;
  [[nodiscard]] Result<void> recover(const Keep& keep);
  /// Remembers where the lines of the input are, so that commit() can bring them into order.
  void remember_lines() { remembers_ = true; }
  /// The next line that was appended is this one of the input's, of so many bytes.
  void note_line(std::int64_t line, std::size_t bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  /// Appends whole lines. After an error the file ends with the last line that was written whole.
  /// Error: io.
  [[nodiscard]] Result<void> append(std::string_view lines);
  /// After an error of append() or commit(): the disk is full, and more room would help.
  bool full() const { return full_; }
  /// After an error of append(): bytes of those lines that stay.
  std::size_t taken() const { return taken_; }
  /// Brings to the disk what has waited for it for long enough. Error: io.
  [[nodiscard]] Result<void> sync_if_due();
  /// Makes the file durable and gives it its name. Error: io; OUT is untouched then, and it may be
  /// called again.
  [[nodiscard]] Result<void> commit();
  /// Removes OUT.partial: nothing was done. So does the end of an object that wrote nothing.
  void discard();

  /// Whether any line was written.
  bool empty() const { return written_ == 0; }
  /// Whether append() failed because nobody reads the pipe any more.
  bool reader_gone() const { return reader_gone_; }

  /// Whether it is a file that a later run may go on with.
  bool is_file() const { return !direct_; }
  /// Where the lines are until commit().
  const std::filesystem::path& partial() const { return partial_; }

 private:
  OutputFile() = default;
  /// A line in the file.
  struct Place {
    std::int64_t line = 0;  ///< of the input
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };
  using Clock = std::chrono::steady_clock;

  static Result<OutputFile> plan(const std::filesystem::path& output,
                                 const std::filesystem::path& input, Existing existing);
  Unexpected cannot_make(int error) const;
  Result<void> rewrite(const std::vector<Place>& places);
  void close();

  std::filesystem::path output_;
  std::filesystem::path partial_;
  int fd_ = -1;
  bool direct_ = false;  ///< no partial file: `-`, a pipe or a device
  bool owns_fd_ = false;
  bool may_replace_ = false;
  bool may_resume_ = false;
  bool took_output_ = false;  ///< OUT was there, and is OUT.partial now
  bool reader_gone_ = false;
  bool full_ = false;
  bool remembers_ = false;
  std::int64_t written_ = 0;   ///< bytes of whole lines
  std::int64_t unsynced_ = 0;  ///< of these, not on the disk for sure
  std::int64_t noted_ = 0;     ///< of these, whose lines are known
  std::size_t taken_ = 0;
  Clock::time_point synced_at_ = Clock::now();
  std::vector<Place> places_;
};

}  // namespace ingot
