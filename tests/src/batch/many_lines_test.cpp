// Very many lines through a batch: how long one takes, and what stays in memory.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <fstream>
#include <thread>

#include "runtime/base/file_descriptor.hpp"
#include "src/batch/batch_job.hpp"
#include "src/batch/earlier_output.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

/// Says "x" and ends, at the least cost: what is measured is everything around an engine.
class QuickEngine final : public Engine {
 public:
  QuickEngine() {
    config_.vocab_size = 300;
    config_.eos_token_id = 1;
    says_ = small_tokenizer().encode("x")[0];
  }
  const ModelConfig& config() const override { return config_; }
  std::int64_t max_context() const override { return 1 << 16; }
  SequenceId create_sequence() override {
    const std::size_t place = free_.empty() ? lengths_.size() : free_.back();
    if (free_.empty()) {
      lengths_.push_back(0);
    } else {
      free_.pop_back();
      lengths_[place] = 0;
    }
    return SequenceId{place};
  }
  SequenceId fork(SequenceId) override { return create_sequence(); }
  void release(SequenceId sequence) override { free_.push_back(place_of(sequence)); }
  std::int64_t length(SequenceId sequence) const override { return lengths_[place_of(sequence)]; }
  void rollback(SequenceId sequence, std::int64_t length) override {
    lengths_[place_of(sequence)] = length;
  }
  std::int64_t max_rollback() const override { return 0; }
  std::vector<StepLogits> step(std::span<const SequenceStep> batch) override {
    std::vector<StepLogits> out(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      lengths_[place_of(batch[i].sequence)] += static_cast<std::int64_t>(batch[i].tokens.size());
      if (batch[i].logits == LogitsOf::none) continue;
      out[i].rows = 1;
      out[i].values.assign(300, 0.0f);
      const bool said = batch[i].tokens.back() == says_;
      out[i].values[static_cast<std::size_t>(said ? 1 : says_)] = 100;
    }
    return out;
  }

 private:
  static std::size_t place_of(SequenceId sequence) { return static_cast<std::size_t>(sequence); }

  ModelConfig config_;
  TokenId says_ = 0;
  std::vector<std::int64_t> lengths_;
  std::vector<std::size_t> free_;
};

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// What this thread has worked: others that run here do not count, nor waiting for input.
double own_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string request(std::int64_t i) {
  return fmt::format(
      "{{\"custom_id\": \"request-{}\", \"method\": \"POST\", \"url\": "
      "\"/v1/chat/completions\", \"body\": {{\"messages\": [{{\"role\": \"user\", "
      "\"content\": \"short\"}}], \"temperature\": 0, \"max_tokens\": 4}}}}\n",
      i);
}

struct Outcome {
  double lines_per_s = 0;
  std::size_t grew_bytes = 0;  ///< from a tenth of the lines on
};

Outcome run(std::int64_t lines, bool in_order) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::thread writer([&] {
    std::string some;
    for (std::int64_t i = 0; i < lines; ++i) {
      some += request(i);
      if (some.size() < 60'000 && i + 1 < lines) continue;
      for (std::string_view rest = some; !rest.empty();) {
        const ssize_t put = ::write(ends[1], rest.data(), rest.size());
        if (put <= 0) break;
        rest.remove_prefix(static_cast<std::size_t>(put));
      }
      some.clear();
    }
    ::close(ends[1]);
  });
  QuickEngine engine;
  SchedulerOptions scheduling;
  scheduling.max_batch = 64;
  scheduling.prefill_tokens_per_step = 512;
  Scheduler scheduler(engine, small_tokenizer(), scheduling);
  BatchOptions options;
  options.order = in_order ? OutputOrder::input : OutputOrder::finish;
  options.max_waiting = 64;
  BatchJob job(scheduler, small_tokenizer(), options);
  BatchJob::Hooks hooks;
  std::size_t written = 0, early = 0, most = 0;
  hooks.write = [&](std::string_view text) -> Result<void> {
    written += text.size();
    return {};
  };
  hooks.on_progress = [&](const BatchCounts& counts) {
    if (counts.answered < lines / 10) return;
    if (early == 0) early = resident_bytes();
    if (counts.answered % 1000 == 0) most = std::max(most, resident_bytes());
  };
  const double start = own_seconds();
  LineReader reader(ends[0], "pipe");
  const auto counts = job.run(reader, hooks);
  const double seconds = own_seconds() - start;
  writer.join();
  ::close(ends[0]);
  REQUIRE(counts);
  CHECK(counts->answered == lines);
  CHECK(written > static_cast<std::size_t>(lines) * 300);
  return {static_cast<double>(lines) / seconds, most > early ? most - early : 0};
}

/// A run that finds all its lines but every hundredth answered.
Outcome run_again(std::int64_t lines) {
  const test::TempDir folder;
  {
    std::ofstream in(folder / "in"), out(folder / "out");
    GenerationResult result;
    result.content = "x";
    result.finish_reason = FinishReason::stop;
    for (std::int64_t i = 0; i < lines; ++i) {
      in << request(i);
      if (i % 100 == 50) continue;
      out << answer_line({i + 1, fmt::format("request-{}", i), "model", BatchEndpoint::chat},
                         {&result, 1}, small_tokenizer());
    }
  }
  QuickEngine engine;
  Scheduler scheduler(engine, small_tokenizer(), {});
  const FileDescriptor in(::open((folder / "in").c_str(), O_RDONLY));
  const FileDescriptor out(::open((folder / "out").c_str(), O_RDONLY));
  const std::size_t before = resident_bytes();
  const double start = own_seconds();
  EarlierOutput earlier(folder / "out", false);
  value_or_throw(earlier.read(out.get()));
  BatchOptions options;
  {
    LineReader reader(in.get(), "in");
    options.done = value_or_throw(earlier.compare(out.get(), reader, {"in"}));
  }
  ::lseek(in.get(), 0, SEEK_SET);
  BatchJob job(scheduler, small_tokenizer(), std::move(options));
  BatchJob::Hooks hooks;
  hooks.write = [](std::string_view) -> Result<void> { return {}; };
  LineReader reader(in.get(), "in");
  const auto counts = value_or_throw(job.run(reader, hooks));
  const double seconds = own_seconds() - start;
  const std::size_t after = resident_bytes();
  CHECK(counts.answered == lines / 100);
  CHECK(counts.done_before == lines - lines / 100);
  return {static_cast<double>(lines) / seconds, after > before ? after - before : 0};
}

}  // namespace

TEST_CASE("a run over thousands of lines is gone on with in little memory", "[cpu][batch]") {
  const Outcome outcome = run_again(20'000);
  if (!test::kSanitized) CHECK(outcome.grew_bytes < (std::size_t{8} << 20));
}

// Hidden: it takes some seconds and a GiB of disk.
TEST_CASE("a run over a million lines is gone on with at 100,000 a second",
          "[.][cpu][batch][million]") {
  const Outcome outcome = run_again(1'000'000);
  fmt::print("{:.0f} lines a second, {} KiB more at the end\n", outcome.lines_per_s,
             outcome.grew_bytes >> 10);
  CHECK(outcome.lines_per_s > 100'000);
  // Some 50 bytes a line; what comparing takes besides is given back.
  if (!test::kSanitized) CHECK(outcome.grew_bytes < (std::size_t{96} << 20));
}

TEST_CASE("thousands of lines pass through a batch in little memory", "[cpu][batch]") {
  const Outcome outcome = run(20'000, GENERATE(false, true));
  if (!test::kSanitized) CHECK(outcome.grew_bytes < (std::size_t{8} << 20));
}

// Hidden: it takes a minute.
TEST_CASE("a million lines pass through a batch at 50,000 a second", "[.][cpu][batch][million]") {
  const Outcome outcome = run(1'000'000, GENERATE(false, true));
  fmt::print("{:.0f} lines a second, {} KiB more at the end than after a tenth\n",
             outcome.lines_per_s, outcome.grew_bytes >> 10);
  CHECK(outcome.lines_per_s > 50'000);
  // Some 40 bytes a line find repeated custom_ids; nothing else grows.
  if (!test::kSanitized) CHECK(outcome.grew_bytes < (std::size_t{64} << 20));
}
