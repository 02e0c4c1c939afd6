// Steps of running answers on a card on which kernels do nothing: all that is left is the host's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "src/executor/device_engine.hpp"
#include "src/schedule/scheduler.hpp"
#include "tests/support/counted_new.hpp"
#include "tests/support/idle_card.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// The device engine of a small model on an idle card, which its ranks share.
struct IdleEngine {
  explicit IdleEngine(int tp_size) : card(std::uint64_t{4} << 30) {
    const ModelConfig config =
        value_or_throw(read_model_config(test::golden_dir() / "reference/tiny-tp.json"));
    std::vector<DeviceRank> ranks;
    for (int rank = 0; rank < tp_size; ++rank) {
      auto context = cu::Context::retain(card.driver(), 0);
      auto weights = value_or_throw(executor::DeviceWeights::synthetic(
          context, config, {.tp_rank = rank, .tp_size = tp_size, .threads = 1}));
      ranks.push_back({std::move(context), std::move(weights)});
    }
    engine = std::make_unique<DeviceEngine>(
        std::move(ranks), config,
        KernelSource{
            .kernels = test::idle_kernels(),
            .records = nullptr,
            .device = {.name = "idle", .arch = "sm_90a", .sm_count = 9, .driver_branch = "none"},
            .policy = {},
            .overrides = {}},
        DeviceOptions{.max_context = 4096,
                      .max_sequences = 8,
                      .step_rows = 256,
                      .jobs = 1,
                      .shared_card = true});
  }
  test::IdleCard card;
  std::unique_ptr<DeviceEngine> engine;
};

/// How the sequences of a batch get their tokens.
struct Choosing {
  const char* name;
  bool sampled;  ///< on the card
  SamplingParams params;
};

std::vector<Choosing> ways_of_choosing() {
  SamplingParams greedy, random;
  greedy.temperature = 0;
  random.temperature = 0.8;
  random.top_p = 0.9;
  SamplingParams adjusted = random;
  adjusted.repetition_penalty = 1.2;
  adjusted.presence_penalty = 0.5;
  adjusted.logit_bias = {{7, 1.5}, {300, -2.0}};
  return {{"greedy", true, greedy},
          {"random", true, random},
          {"with penalties and bias", true, adjusted},
          {"from logits", false, greedy}};
}

/// Steps of several sequences, a token each, like those of a scheduler.
class Answers {
 public:
  Answers(DeviceEngine& engine, const Choosing& choosing, int count)
      : engine_(engine), choosing_(choosing), newest_(static_cast<std::size_t>(count), 5) {
    for (int i = 0; i < count; ++i)
      sequences_.push_back(engine.create_sequence());
    history_.prompt = {1, 2, 3};
    history_.generated = {{5, 1}};
    // Not in the order in which they were made.
    std::reverse(sequences_.begin(), sequences_.end());
  }
  ~Answers() {
    for (const SequenceId sequence : sequences_)
      engine_.release(sequence);
  }

  /// Each sequence by itself.
  void feed(std::int64_t tokens) {
    const std::vector<TokenId> prompt(static_cast<std::size_t>(tokens), 7);
    for (const SequenceId sequence : sequences_)
      (void)engine_.step(std::vector<SequenceStep>{{sequence, prompt, LogitsOf::none}});
  }
  /// Lists have room from the first step on.
  void decode() {
    batch_.clear();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      batch_.push_back({sequences_[i], std::span(newest_).subspan(i, 1), LogitsOf::last});
      if (choosing_.sampled) {
        batch_.back().sample =
            SampleRequest{&choosing_.params, &history_, engine_.length(sequences_[i]) + 1};
      }
    }
    engine_.launch(batch_);
    for (const StepLogits& result : engine_.finish())
      answered_ +=
          choosing_.sampled ? (*result.sampled)->id == test::IdleCard::kToken : result.rows;
  }
  int answered() const { return answered_; }

 private:
  DeviceEngine& engine_;
  const Choosing& choosing_;
  std::vector<TokenId> newest_;
  std::vector<SequenceId> sequences_;
  TokenHistory history_;
  std::vector<SequenceStep> batch_;
  int answered_ = 0;
};

}  // namespace

TEST_CASE("a decode step within a bucket costs the host no memory and one wait",
          "[cpu][executor]") {
  const int ranks = GENERATE(1, 2);
  IdleEngine idle(ranks);
  DeviceEngine& engine = *idle.engine;
  for (const Choosing& choosing : ways_of_choosing()) {
    CAPTURE(ranks, choosing.name);
    constexpr int kSequences = 5, kSteps = 80;
    Answers answers(engine, choosing, kSequences);
    answers.feed(230);
    for (int i = 0; i < 3; ++i)  // as it is, recorded, replayed
      answers.decode();
    const DeviceStats before = engine.stats();
    std::int64_t allocated = 0;
    const int waits_before = idle.card.waits();
    {
      const test::CountedNew counted;
      for (int i = 0; i < kSteps; ++i)  // all pass token 256, where the next page begins
        answers.decode();
      allocated = counted.count();
    }
    const int waits = idle.card.waits() - waits_before;
    const DeviceStats after = engine.stats();
    CHECK(allocated == 0);
    // Each rank for its step; for logits once more each.
    CHECK(waits == kSteps * (ranks + (choosing.sampled ? 0 : kSequences)));
    CHECK(answers.answered() == kSequences * (kSteps + 3));
    CHECK(after.pages_in_use > before.pages_in_use);
    CHECK(after.steps == before.steps + kSteps);
    CHECK(after.graph_steps == before.graph_steps + kSteps);
    CHECK(after.graphs == before.graphs);
    CHECK(after.kernels_compiled == before.kernels_compiled);
  }
}

TEST_CASE("a scheduler's steps allocate for what the answers grow by", "[cpu][executor]") {
  IdleEngine idle(1);
  const Tokenizer& tokenizer = test::small_tokenizer();
  Scheduler scheduler(*idle.engine, tokenizer,
                      {.max_batch = 6, .prefill_chunk = 128, .kept_prefixes = 2});
  std::size_t told = 0;  // bytes of text
  const auto ways = ways_of_choosing();
  constexpr int kSteps = 50, kRequests = 6;
  for (int i = 0; i < kRequests; ++i) {
    ScheduledRequest request;
    request.generation.name = "an answer";
    request.generation.prompt = {3, 4, 5, static_cast<TokenId>(6 + i)};
    request.generation.plain = true;
    request.generation.sampling = ways[static_cast<std::size_t>(i) % 3].params;
    request.on_delta = [&](const OutputDelta& delta) { told += delta.content.size(); };
    REQUIRE(scheduler.submit(std::move(request)));
  }
  while (scheduler.totals().generated_tokens < std::int64_t{100} * kRequests)
    REQUIRE(scheduler.step());
  REQUIRE(scheduler.running() == kRequests);
  const std::int64_t generated = scheduler.totals().generated_tokens;
  const std::size_t told_before = told;
  std::int64_t allocated = 0;
  {
    const test::CountedNew counted;
    for (int i = 0; i < kSteps; ++i)
      scheduler.step();
    allocated = counted.count();
  }
  CAPTURE(allocated);
  CHECK(scheduler.totals().generated_tokens == generated + kSteps * kRequests);
  CHECK(told == told_before + kSteps * kRequests * tokenizer.bytes(test::IdleCard::kToken).size());
  // Twice as much room for an answer's tokens, and for its text.
  CHECK(allocated <= 2 * kRequests);
}
