#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/batch/batch_answer.hpp"
#include "src/batch/batch_request.hpp"
#include "src/batch/done_lines.hpp"
#include "src/batch/id_set.hpp"
#include "src/batch/input_shard.hpp"
#include "src/batch/line_reader.hpp"
#include "src/batch/line_template.hpp"
#include "src/schedule/scheduler.hpp"

namespace ingot {

enum class OutputOrder {
  input,   ///< results wait in memory for their turn
  finish,  ///< each is written as it is there
};

struct BatchOptions {
  BatchFormat format = BatchFormat::jsonl;
  /// Write answers alone, one a line. In input order each line of the input has its line: an empty
  /// one where it is blank or failed; one with n answers has n.
  bool plain_text = false;
  BatchDefaults defaults;
  std::shared_ptr<const LineTemplate> line_template;  ///< the lines are fields for it
  OutputOrder order = OutputOrder::input;
  /// In input order: lines read ahead of the oldest unfinished one.
  std::size_t window = 1024;
  std::size_t max_waiting = 8;  ///< requests that wait for a place in the batch
  InputShard shard;
  DoneLines done;  ///< are passed over
};

struct BatchCounts {
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  std::int64_t blank = 0;          ///< lines
  std::int64_t done_before = 0;    ///< passed over, as an earlier run had dealt with them
  std::int64_t failed_before = 0;  ///< of those, the ones that failed in it
  std::int64_t input_bytes = 0;    ///< of the lines that were read
  bool interrupted = false;
};

/// Answers a stream of lines through a scheduler. A bad line costs an error object and nothing
/// else. Memory is bounded by the window, the batch and some 40 bytes a line for finding repeated
/// custom_ids. Not its job: files, progress display.
class BatchJob {
 public:
  BatchJob(Scheduler& scheduler, const Tokenizer& tokenizer, BatchOptions options);

  struct Hooks {
    /// Whole lines of output. An error ends the job.
    std::function<Result<void>(std::string_view)> write;
    /// Told of each line that was written, in the order of the file: its number in the input and
    /// its bytes.
    std::function<void(std::int64_t line, std::size_t bytes)> on_written = [](std::int64_t,
                                                                              std::size_t) {};
    /// Asked between steps: read no more and end those that have begun.
    std::function<bool()> should_finish = [] { return false; };
    /// Asked between steps: end now. Lines in flight are dropped; what is finished is written.
    std::function<bool()> should_stop = [] { return false; };
    /// Told after each step.
    std::function<void(const BatchCounts&)> on_progress = [](const BatchCounts&) {};
    /// Told of each line that fails.
    std::function<void(const BatchError&)> on_error = [](const BatchError&) {};
  };

  /// Runs to the end of input, or until it is told to end. Errors: io from the reader or from
  /// write.
  [[nodiscard]] Result<BatchCounts> run(LineReader& input, const Hooks& hooks);

 private:
  /// A line in flight.
  struct Slot {
    AnswerHead head;
    std::vector<GenerationResult> choices;
    int missing = 0;  ///< choices that are not finished
    int wanted = 1;   ///< choices, as far as the line could be understood
    std::optional<std::string> output;
    bool dropped = false;
  };

  [[nodiscard]] Result<void> read_ahead(LineReader& input);
  bool aligns() const;
  void start(InputLine line);
  BatchResult<BatchRequest> understand(InputLine line);
  /// Whether an earlier run has dealt with it; if so, it is counted.
  bool pass_over(std::int64_t line);
  /// Whether an earlier line has that custom_id; later ones are told that this one has it.
  bool is_repeated(std::int64_t line, const std::string& custom_id);
  std::optional<BatchError> submit(BatchRequest request, Slot& slot);
  Result<std::vector<TokenId>> prompt_of(BatchRequest& request) const;
  void finish(Slot& slot, std::size_t choice, GenerationResult result);
  void settle(Slot& slot, const BatchError& error);
  [[nodiscard]] Result<void> write_finished(bool all);

  Scheduler& scheduler_;
  const Tokenizer& tokenizer_;
  BatchOptions options_;
  std::optional<TokenId> begin_;  ///< what a completion's text follows
  const Hooks* hooks_ = nullptr;
  std::list<Slot> slots_;  ///< of the lines that are not written yet; they keep their places
  IdSet seen_;
  bool input_ended_ = false;
  bool cut_ = false;  ///< a line was dropped, and lines behind it could not be told from it
  BatchCounts counts_;
};

}  // namespace ingot
