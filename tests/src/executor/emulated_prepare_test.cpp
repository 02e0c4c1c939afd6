#include <catch2/catch.hpp>

#include "runtime/cuda/device_buffer.hpp"
#include "src/plan/step_forecast.hpp"
#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/prepared_turn.hpp"

using namespace ingot;
using test::kCrossingTurn;
using test::prepare_all;
using test::run_turn;

namespace {

/// Tokens whose logits nobody wants, and others, in two context buckets.
constexpr int kBuckets = 4;

struct Engines {
  std::unique_ptr<DeviceEngine> make(int ranks, KernelSource source) const {
    std::vector<DeviceRank> parts;
    const Checkpoint checkpoint = (ranks == 1 ? one : several).open();
    for (int rank = 0; rank < ranks; ++rank) {
      auto context = cu::Context::retain(card->driver(), 0);
      auto weights = value_or_throw(executor::DeviceWeights::load(
          context, checkpoint, {.tp_rank = rank, .tp_size = ranks, .threads = 2}));
      parts.push_back({std::move(context), std::move(weights)});
    }
    return std::make_unique<DeviceEngine>(std::move(parts), checkpoint.config(), std::move(source),
                                          DeviceOptions{.max_context = 8192,
                                                        .max_sequences = 2,
                                                        .context_tokens = 16384,
                                                        .jobs = 2,
                                                        .shared_card = true,
                                                        .peer_limit_ms = 600'000});
  }

  std::unique_ptr<test::HostCard> card =
      test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  test::SyntheticModel one{"tiny"}, several{"tiny-tp"};
};

}  // namespace

TEST_CASE("a forecast names the sizes of its steps, in every context that they reach",
          "[cpu][executor]") {
  constexpr std::int64_t kModel = 1 << 20;
  const auto single = [](std::int64_t context, bool sampled) {
    return StepBucket{.context = context, .sampled = sampled};
  };
  const auto chunk = [](int rows, std::int64_t context) {
    return StepBucket{.rows = rows, .sequence_rows = rows, .logit_rows = 0, .context = context};
  };
  CHECK(forecast_buckets(kCrossingTurn, kModel, true, false) ==
        std::vector{single(4096, true), single(32768, true), chunk(1, 4096), chunk(1, 32768)});
  // What most questions are comes first.
  CHECK(forecast_buckets({.from = 0, .to = 2048, .chunk = 20, .asked = true}, kModel, true,
                         false) == std::vector{single(4096, true), single(4096, false),
                                               chunk(8, 4096), chunk(16, 4096), chunk(32, 4096),
                                               chunk(1, 4096), chunk(2, 4096), chunk(4, 4096)});
  // A model whose tokens the engine cannot choose gives logits.
  CHECK(forecast_buckets({.from = 0, .to = 1, .chunk = 1}, kModel, false, false) ==
        std::vector{single(4096, false), chunk(1, 4096)});
  // A full context leaves nothing to come; a model's own end is one.
  CHECK(forecast_buckets({.from = 64, .to = 64}, kModel, true, false).empty());
  CHECK(forecast_buckets({.from = 1000, .to = 5000}, 2000, true, false) ==
        std::vector{single(2000, true), chunk(1, 2000)});
  for (const StepBucket& bucket :
       forecast_buckets({.from = 0, .to = 1, .chunk = 4096}, kModel, true, true)) {
    CHECK(bucket.batch_free);
    CHECK(bucket.rows <= kBatchFreeRows);
  }
}

TEST_CASE("a turn that was prepared records and loads nothing, in a new context bucket either",
          "[cpu][executor]") {
  const int ranks = GENERATE(1, 2);
  CAPTURE(ranks);
  const Engines engines;
  const auto unprepared = engines.make(ranks, test::emulated_source());
  // Without it each bucket is made ready by the first step, and recorded by the second; with
  // several ranks by the first.
  const auto wanted = run_turn(*unprepared);
  CHECK(unprepared->stats().graphs == (ranks == 1 ? 2 : kBuckets));  // 2 came twice
  const auto engine = engines.make(ranks, test::emulated_source());
  const int compiled = engine->stats().kernels_compiled;
  CHECK(prepare_all(*engine) == kBuckets);
  const DeviceStats before = engine->stats();
  CHECK(before.buckets == kBuckets);
  CHECK(before.graphs == kBuckets);
  CHECK(before.kernels_compiled == compiled);
  CHECK(before.steps == 0);
  CHECK(run_turn(*engine) == wanted);
  const DeviceStats after = engine->stats();
  CHECK(after.buckets == before.buckets);
  CHECK(after.graphs == before.graphs);
  CHECK(after.kernels_compiled == compiled);
  CHECK(after.graph_steps == after.steps);
  // Nothing is left to do, and nothing is done beside a step.
  CHECK(prepare_all(*engine) == 0);
  const auto tokens = test::some_tokens(engine->config().vocab_size, 1);
  const SequenceStep step{engine->create_sequence(), tokens, LogitsOf::none};
  engine->launch({&step, 1});
  CHECK(!engine->prepare({.from = 0, .to = 10, .chunk = 64}));
  engine->finish();
}

TEST_CASE("what would have to be compiled, or finds no memory, is left to the step that needs it",
          "[cpu][executor]") {
  const Engines engines;
  const std::uint64_t free = engines.card->free_bytes();
  {
    // Kernels that nobody has compiled yet.
    const test::TempDir folder;
    KernelSource source = test::emulated_source();
    source.kernels = test::emulated_kernels_in(folder.path());
    const auto engine = engines.make(1, source);
    CHECK(prepare_all(*engine) == kBuckets);
    CHECK(prepare_all(*engine) == 0);
    CHECK(engine->stats().buckets == 0);
    CHECK(engine->stats().kernels_compiled == 0);
  }
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    const auto engine = engines.make(ranks, test::emulated_source());
    {
      const auto context = cu::Context::retain(engines.card->driver(), 0);
      const auto all =
          cu::DeviceBuffer::allocate(context, static_cast<std::size_t>(engines.card->free_bytes()));
      CHECK(prepare_all(*engine) == kBuckets);
    }
    CHECK(engine->stats().buckets == 0);
    CHECK(engine->stats().graphs == 0);
    const auto tokens = test::some_tokens(engine->config().vocab_size, 1);
    const SequenceStep step{engine->create_sequence(), tokens, LogitsOf::none};
    CHECK_NOTHROW(engine->step({&step, 1}));
  }
  CHECK(engines.card->live_objects() == 0);
  CHECK(engines.card->free_bytes() == free);
}
