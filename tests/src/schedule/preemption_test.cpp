// What the scheduler does where the engine has little room: against solo runs, and against a model.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "src/schedule/scheduler.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/scheduler_model.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

/// A request made of numbers, so that it can be made twice.
struct Made {
  std::size_t prompt = 0;
  std::int64_t answer = 0;
  std::uint64_t seed = 0;
};

ScheduledRequest as_request(const Made& made) {
  ScheduledRequest request;
  request.generation.name = "request " + std::to_string(made.seed);
  std::mt19937_64 random(made.seed);
  for (std::size_t i = 0; i < made.prompt; ++i)
    request.generation.prompt.push_back(static_cast<TokenId>(10 + random() % 200));
  SamplingParams& sampling = request.generation.sampling;
  sampling.seed = made.seed;
  sampling.temperature = made.seed % 2 == 0 ? 0 : 1;
  sampling.max_tokens = made.answer;
  sampling.ignore_eos = made.seed % 3 == 0;
  sampling.presence_penalty = made.seed % 5 == 0 ? 1 : 0;
  return request;
}

GenerationResult alone(const Made& made) {
  FakeEngine engine;
  Scheduler scheduler(engine, small_tokenizer(), {});
  GenerationResult result;
  ScheduledRequest request = as_request(made);
  request.on_finish = [&](GenerationResult finished) { result = std::move(finished); };
  (void)value_or_throw(scheduler.submit(std::move(request)));
  while (scheduler.step()) {
  }
  return result;
}

std::vector<Made> some_requests(std::mt19937_64& random, int count, std::size_t longest_prompt,
                                std::int64_t longest_answer) {
  std::vector<Made> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(
        {1 + random() % longest_prompt,
         1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest_answer)),
         static_cast<std::uint64_t>(i)});
  }
  return out;
}

}  // namespace

TEST_CASE("requests that give their room back say what they would have said", "[cpu][schedule]") {
  std::mt19937_64 random(7);
  const std::vector<Made> made = some_requests(random, 60, 40, 40);
  FakeEngine engine;
  engine.set_pages(24, 4);  // one needs up to 20 of them
  const bool longest_first = GENERATE(false, true);
  Scheduler scheduler(engine, small_tokenizer(), {8, 8, 16, longest_first});
  std::map<std::uint64_t, GenerationResult> results;
  std::map<std::uint64_t, OutputDelta> heard;
  for (const Made& one : made) {
    ScheduledRequest request = as_request(one);
    request.on_delta = [&heard, seed = one.seed](const OutputDelta& delta) {
      append(heard[seed], delta);
    };
    request.on_finish = [&results, seed = one.seed](GenerationResult finished) {
      CHECK(results.emplace(seed, std::move(finished)).second);
    };
    (void)value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step())
    REQUIRE(engine.pages_in_use() <= 24);
  CHECK(scheduler.totals().preemptions > 20);
  CHECK(scheduler.totals().repeated_tokens > 0);
  CHECK(engine.pages_in_use() == 0);
  CHECK(engine.live_sequences() == 0);
  std::int64_t prompts = 0;
  for (const Made& one : made) {
    const GenerationResult expected = alone(one);
    CAPTURE(one.seed);
    CHECK(results[one.seed].tokens == expected.tokens);
    CHECK(results[one.seed].finish_reason == expected.finish_reason);
    CHECK(heard[one.seed].content == expected.content);
    prompts += expected.prompt_tokens;
  }
  CHECK(scheduler.totals().prompt_tokens == prompts);
}

TEST_CASE("a request that no room is enough for fails alone, by name", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_pages(4, 4);
  Scheduler scheduler(engine, small_tokenizer(), {8, 8, 8});
  std::map<std::uint64_t, GenerationResult> results;
  for (const Made& one : {Made{4, 4, 3}, Made{40, 4, 6}, Made{5, 3, 9}}) {
    ScheduledRequest request = as_request(one);
    request.on_finish = [&results, seed = one.seed](GenerationResult finished) {
      results[seed] = std::move(finished);
    };
    (void)value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step()) {
  }
  REQUIRE(results.size() == 3);
  CHECK(results[3].tokens == alone({4, 4, 3}).tokens);
  CHECK(results[9].tokens == alone({5, 3, 9}).tokens);
  REQUIRE(results[6].error);
  CHECK(results[6].error->code == ErrorCode::exhausted);
  CHECK(results[6].error->message.find("request 6: ") == 0);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("an engine with fewer places than the batch fills those", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_max_sequences(3);
  Scheduler scheduler(engine, small_tokenizer(), {8, 8, 8});
  int finished = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ScheduledRequest request = as_request({3, 4, 3 * i});
    request.on_finish = [&](GenerationResult result) { finished += !result.error; };
    (void)value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step()) {
  }
  CHECK(finished == 20);
  CHECK(engine.widest_batch() == 3);
}

TEST_CASE("room that others hold is not taken from them", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_pages(4, 4);
  const SequenceId kept = engine.create_sequence();
  const std::vector<TokenId> tokens(8, 20);
  const SequenceStep step{kept, tokens, LogitsOf::none};
  (void)engine.step({&step, 1});
  Scheduler scheduler(engine, small_tokenizer(), {8, 4, 4});
  ScheduledRequest request = as_request({30, 3, 3});
  std::fill_n(request.generation.prompt.begin(), 8, 20);
  request.sequence = kept;
  (void)value_or_throw(scheduler.submit(std::move(request)));
  const auto run = [&] {
    while (scheduler.step()) {
    }
  };
  CHECK_THROWS_AS(run(), EngineError);
  CHECK(engine.live_sequences() == 1);
}

TEST_CASE("requests that have not begun are taken back, the others end", "[cpu][schedule]") {
  FakeEngine engine;
  Scheduler scheduler(engine, small_tokenizer(), {4, 8, 8});
  int cancelled = 0, ended = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ScheduledRequest request = as_request({6, 9, 3 * i});
    request.on_finish = [&](GenerationResult result) {
      ++(result.finish_reason == FinishReason::cancelled ? cancelled : ended);
    };
    (void)value_or_throw(scheduler.submit(std::move(request)));
  }
  scheduler.step();
  scheduler.cancel_waiting();
  while (scheduler.step()) {
  }
  CHECK(ended == 4);
  CHECK(cancelled == 8);
}

TEST_CASE("the scheduler does what its model does, whatever comes", "[cpu][schedule]") {
  for (std::uint64_t round = 0; round < 60; ++round) {
    CAPTURE(round);
    std::mt19937_64 random(round);
    const auto from = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    const int chunk = from(1, 12);
    const SchedulerOptions options{from(1, 9), chunk, chunk * from(1, 3)};
    const std::int64_t page = from(1, 6);
    const std::size_t longest_prompt = 20;
    const std::int64_t longest_answer = 15;
    // Enough for the longest alone.
    const std::int64_t pages = (35 + page - 1) / page + from(0, 40);
    FakeEngine engine;
    engine.set_pages(pages, page);
    Scheduler scheduler(engine, small_tokenizer(), options);
    SchedulerModel model(false, options, pages, page);
    std::vector<std::int64_t> order;
    std::int64_t next = 0;
    bool more = true, model_more = true;
    int left = 30;
    while (left > 0 || more) {
      for (int arrivals = from(0, 4); arrivals > 0 && left > 0; --arrivals, --left) {
        const Made made = some_requests(random, 1, longest_prompt, longest_answer)[0];
        ScheduledRequest request = as_request({made.prompt, made.answer, 3 * random()});
        request.generation.sampling.ignore_eos = true;
        request.on_finish = [&order, id = next](GenerationResult) { order.push_back(id); };
        (void)value_or_throw(scheduler.submit(std::move(request)));
        model.submit({static_cast<std::int64_t>(made.prompt), made.answer});
        ++next;
      }
      if (scheduler.running() + scheduler.waiting() == 0) continue;
      more = scheduler.step();
      model_more = model.step();
      REQUIRE(more == model_more);
      REQUIRE(engine.steps() - engine.refused_steps() == model.steps());
      REQUIRE(scheduler.totals().preemptions == model.preemptions());
      REQUIRE(order == model.order());
    }
    CHECK(order.size() == 30);
    CHECK(engine.live_sequences() == 0);
  }
}
