#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/engine/engine.hpp"

namespace ingot::test {

/// An engine whose logits are a made-up function of the tokens so far. It holds its users to the
/// contract of Engine (a broken one throws std::logic_error) and counts what they ask of it.
class FakeEngine final : public Engine {
 public:
  using LogitsFunction =
      std::function<void(const std::vector<TokenId>& tokens, std::vector<float>& logits)>;

  explicit FakeEngine(int vocab_size = 300);

  const ModelConfig& config() const override { return config_; }
  std::int64_t max_context() const override { return max_context_; }
  SequenceId create_sequence() override;
  SequenceId fork(SequenceId sequence) override;
  void release(SequenceId sequence) override;
  std::int64_t length(SequenceId sequence) const override;
  void rollback(SequenceId sequence, std::int64_t length) override;
  std::int64_t max_rollback() const override { return max_rollback_; }
  Result<std::string> snapshot_bytes(SequenceId sequence) const override;
  Result<SequenceId> restore(std::string_view bytes) override;
  /// Once set_pages() has said how many there are.
  std::optional<EngineRoom> room() const override;
  std::vector<StepLogits> step(std::span<const SequenceStep> batch) override;
  bool prepare(const StepForecast& forecast) override {
    return prepare_ != nullptr && prepare_(forecast);
  }
  bool can_overlap() const override { return overlaps_; }
  void launch(std::span<const SequenceStep> batch) override;
  std::span<StepLogits> finish() override;

  /// By default, noise that depends on every token of the sequence, with ends now and then.
  void set_logits(LogitsFunction function) { function_ = std::move(function); }
  void set_max_context(std::int64_t tokens) { max_context_ = tokens; }
  /// Whether sequences can leave it as bytes.
  void set_can_snapshot(bool can) { can_snapshot_ = can; }
  void set_max_rollback(std::int64_t tokens) { max_rollback_ = tokens; }
  /// Beyond so many sequences at a time it has no room (exhausted).
  void set_max_sequences(std::size_t count) { max_sequences_ = count; }
  /// Sequences take whole pages of so many tokens, and there are so many pages: a step that needs
  /// more is refused (exhausted) before anything changes.
  void set_pages(std::int64_t count, std::int64_t tokens) {
    pages_ = count;
    page_tokens_ = tokens;
  }
  /// Whether it takes offers to choose tokens; of which parameters is up to `takes`.
  void set_samples(std::function<bool(const SamplingParams&)> takes) { takes_ = std::move(takes); }
  /// Whether its steps have two halves. Between these nobody may touch their sequences.
  void set_overlaps(bool overlaps) { overlaps_ = overlaps; }
  /// Called at the end of each step that has two halves, with its number from 1.
  void set_before_finish(std::function<void(int)> function) {
    before_finish_ = std::move(function);
  }
  /// What prepare() does.
  void set_prepare(std::function<bool(const StepForecast&)> function) {
    prepare_ = std::move(function);
  }
  /// Called before each step, with its number from 1.
  void set_before_step(std::function<void(int)> function) { before_step_ = std::move(function); }

  int steps() const { return steps_; }
  bool is_under_way() const { return !under_way_.empty(); }
  int tokens_sampled() const { return tokens_sampled_; }
  std::int64_t tokens_fed() const { return tokens_fed_; }
  std::size_t widest_batch() const { return widest_batch_; }
  std::size_t live_sequences() const { return sequences_.size(); }
  std::int64_t pages_in_use() const;
  /// Steps that were refused for want of pages.
  int refused_steps() const { return refused_steps_; }
  const std::vector<TokenId>& tokens(SequenceId sequence) const { return find(sequence); }

 private:
  const std::vector<TokenId>& find(SequenceId sequence) const;
  std::vector<StepLogits> run(std::span<const SequenceStep> batch);

  /// What a step was given, and where it lies.
  struct Given {
    SequenceStep step;
    std::vector<TokenId> tokens;
  };

  ModelConfig config_;
  std::int64_t max_context_ = 1 << 20;
  std::int64_t max_rollback_ = 8;
  bool can_snapshot_ = true;
  std::size_t max_sequences_ = SIZE_MAX;
  std::int64_t pages_ = INT64_MAX;
  std::int64_t page_tokens_ = 1;
  int refused_steps_ = 0;
  LogitsFunction function_;
  std::function<void(int)> before_step_;
  std::function<bool(const StepForecast&)> prepare_;
  std::function<bool(const SamplingParams&)> takes_;
  bool overlaps_ = false;
  std::vector<Given> under_way_;
  std::vector<StepLogits> results_;
  std::function<void(int)> before_finish_;
  Sampler sampler_;
  int tokens_sampled_ = 0;
  std::map<std::uint64_t, std::vector<TokenId>> sequences_;
  std::uint64_t next_ = 1;
  int steps_ = 0;
  std::int64_t tokens_fed_ = 0;
  std::size_t widest_batch_ = 0;
};

/// Logits that make an answer of these tokens certain, whatever the prompt: the answer begins after
/// the newest <｜Assistant｜> with its <think> or </think>. Afterwards comes EOS.
FakeEngine::LogitsFunction scripted(std::vector<TokenId> answer);
/// The same from text; control tokens are recognised in it.
FakeEngine::LogitsFunction scripted_text(const std::string& answer);

}  // namespace ingot::test
