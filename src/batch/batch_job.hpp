#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>

#include "src/batch/batch_request.hpp"
#include "src/batch/line_reader.hpp"
#include "src/schedule/scheduler.hpp"

namespace ingot {

enum class BatchFormat { jsonl, text };

struct BatchOptions {
  BatchFormat format = BatchFormat::jsonl;
  bool plain_text = false;  ///< write answers alone
  BatchDefaults defaults;
  /// Lines read ahead of the oldest unfinished one: results wait in memory for their turn.
  std::size_t window = 1024;
  std::size_t max_waiting = 8;  ///< requests that wait for a place in the batch
};

struct BatchCounts {
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  std::int64_t blank = 0;
  bool interrupted = false;
};

/// Answers a stream of lines through a scheduler, in input order. A bad line costs an error object
/// and nothing else. Memory is bounded by the window, the batch and 16 bytes a line for finding
/// repeated custom_ids. Not its job: files, progress display.
class BatchJob {
 public:
  BatchJob(Scheduler& scheduler, const Tokenizer& tokenizer, BatchOptions options);

  struct Hooks {
    /// Whole lines of output, in order. An error ends the job.
    std::function<Result<void>(std::string_view)> write;
    /// Asked between steps: end now. Lines in flight are dropped; what is finished is written.
    std::function<bool()> should_stop = [] { return false; };
    /// Told after each step.
    std::function<void(const BatchCounts&)> on_progress = [](const BatchCounts&) {};
    /// Told of each line that fails.
    std::function<void(const BatchError&)> on_error = [](const BatchError&) {};
  };

  /// Runs to the end of input, or until should_stop. Errors: io from the reader or from write.
  [[nodiscard]] Result<BatchCounts> run(LineReader& input, const Hooks& hooks);

 private:
  struct Slot {
    std::optional<std::string> output;
    bool dropped = false;
  };

  [[nodiscard]] Result<void> read_ahead(LineReader& input);
  void start(InputLine line);
  BatchResult<BatchRequest> understand(InputLine line);
  std::optional<BatchError> submit(BatchRequest request, Slot& slot);
  void settle(Slot& slot, const BatchError& error);
  [[nodiscard]] Result<void> write_finished(bool all);

  Scheduler& scheduler_;
  const Tokenizer& tokenizer_;
  BatchOptions options_;
  const Hooks* hooks_ = nullptr;
  std::deque<Slot> slots_;  ///< of the lines that are not written yet; a deque keeps them in place
  struct IdHash {
    std::uint64_t low, high;
    bool operator==(const IdHash&) const = default;
  };
  struct HashOfId {
    std::size_t operator()(const IdHash& id) const { return static_cast<std::size_t>(id.low); }
  };
  std::unordered_set<IdHash, HashOfId> seen_;
  bool input_ended_ = false;
  BatchCounts counts_;
};

}  // namespace ingot
