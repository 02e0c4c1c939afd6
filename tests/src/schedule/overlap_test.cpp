// The scheduler over an engine whose steps have two halves: what is said is the same, and no more
// is done than its model says, whatever ends, is cancelled or gives its room back meanwhile.
#include <catch2/catch.hpp>
#include <random>

#include "src/schedule/scheduler.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/scheduler_model.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

/// Letters, now and then a control token, so that stop strings and ends of thinking come about.
void say_letters(const std::vector<TokenId>& tokens, std::vector<float>& logits) {
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (const TokenId token : tokens)
    state = (state ^ static_cast<std::uint64_t>(token)) * 0x100000001B3;
  for (float& logit : logits) {
    state = state * 6364136223846793005 + 1442695040888963407;
    logit = static_cast<float>(state >> 40) * 0x1p-22f - 20;
  }
  static const std::vector<TokenId> letters = small_tokenizer().encode("abcd");
  for (const TokenId letter : letters)
    logits[static_cast<std::size_t>(letter)] += 20;
  logits[static_cast<std::size_t>(control_id(control::kThinkEnd))] += 19.5f;
  logits[1] += 17.5f;
}

ScheduledRequest made_request(std::mt19937_64& random) {
  const auto from = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  ScheduledRequest request;
  GenerationRequest& asked = request.generation;
  asked.name = "a request";
  asked.thinking = from(0, 1) == 1;
  asked.plain = !asked.thinking && from(0, 2) == 0;
  asked.prompt = small_tokenizer().encode(
      "<｜User｜>" + std::string(static_cast<std::size_t>(from(0, 30)), 'a') + "<｜Assistant｜>" +
          (asked.thinking ? "<think>" : "</think>"),
      AddedTokens::recognise);
  SamplingParams& p = asked.sampling;
  p.seed = random();
  p.temperature = from(0, 2) == 0 ? 0 : 1;
  p.max_tokens = from(1, 40);
  if (from(0, 1) == 0) p.stop = {from(0, 1) == 0 ? "ab" : "c", "bdd"};
  if (from(0, 4) == 0) p.stop_ids = small_tokenizer().encode("d");
  if (from(0, 2) == 0) p.thinking_budget = from(0, 6);
  if (from(0, 2) == 0) p.presence_penalty = 0.5;
  if (from(0, 2) == 0) p.top_logprobs = from(0, 3);
  return request;
}

struct Heard {
  GenerationResult result;
  OutputDelta joined;
  int firsts = 0, ends = 0;
};

struct Run {
  std::vector<Heard> heard;
  Scheduler::Totals totals;
};

Run run(FakeEngine& engine, std::uint64_t seed, int requests, const SchedulerOptions& options) {
  Run out;
  out.heard.resize(static_cast<std::size_t>(requests));
  std::mt19937_64 random(seed);
  Scheduler scheduler(engine, small_tokenizer(), options);
  for (Heard& heard : out.heard) {
    ScheduledRequest request = made_request(random);
    request.on_first_token = [&heard] { ++heard.firsts; };
    request.on_delta = [&heard](const OutputDelta& delta) {
      CHECK(heard.firsts == 1);
      CHECK(heard.ends == 0);
      append(heard.joined, delta);
    };
    request.on_finish = [&heard](GenerationResult result) {
      heard.result = std::move(result);
      ++heard.ends;
    };
    value_or_throw(scheduler.submit(std::move(request)));
    if (random() % 2 == 0) scheduler.step();
  }
  while (scheduler.step()) {
  }
  CHECK_FALSE(engine.is_under_way());
  out.totals = scheduler.totals();
  return out;
}

}  // namespace

TEST_CASE("answers are the same whether or not the next step is under way while they are told",
          "[cpu][schedule]") {
  const std::uint64_t seed = GENERATE(range(1U, 13U));
  CAPTURE(seed);
  FakeEngine in_one_piece, overlapping;
  for (FakeEngine* engine : {&in_one_piece, &overlapping}) {
    engine->set_logits(say_letters);
    if (seed % 2 == 0) engine->set_samples([](const SamplingParams&) { return true; });
    if (seed % 3 == 0) engine->set_pages(40, 4);
  }
  overlapping.set_overlaps(true);
  SchedulerOptions options{.max_batch = 6, .prefill_chunk = 8, .prefill_tokens_per_step = 16};
  if (seed % 4 == 0) options.kept_prefixes = 3;
  const Run wanted = run(in_one_piece, seed, 60, options);
  const Run got = run(overlapping, seed, 60, options);
  CHECK(overlapping.live_sequences() == 0);
  CHECK(wanted.totals.dropped_tokens == 0);
  CHECK(got.totals.dropped_tokens > 0);
  CHECK(got.totals.generated_tokens == wanted.totals.generated_tokens);
  CHECK(got.totals.prompt_tokens + got.totals.reused_tokens ==
        wanted.totals.prompt_tokens + wanted.totals.reused_tokens);
  for (std::size_t i = 0; i < wanted.heard.size(); ++i) {
    CAPTURE(i);
    const GenerationResult& a = got.heard[i].result;
    const GenerationResult& b = wanted.heard[i].result;
    CHECK(got.heard[i].ends == 1);
    CHECK(a.tokens == b.tokens);
    CHECK(a.content == b.content);
    CHECK(a.reasoning == b.reasoning);
    CHECK(a.finish_reason == b.finish_reason);
    CHECK(a.end_token == b.end_token);
    CHECK(a.thinking_tokens == b.thinking_tokens);
    CHECK(a.logprobs.size() == b.logprobs.size());
    CHECK(got.heard[i].joined.content == a.content);
    CHECK(got.heard[i].joined.reasoning == a.reasoning);
  }
}

// Requests of which the model knows what they will say.
namespace {

using End = ModelRequest::End;

constexpr TokenId kPromptEnd = 250;
constexpr TokenId kCountsFrom = 10;

ScheduledRequest as_request(const ModelRequest& asked) {
  ScheduledRequest request;
  request.generation.name = "a request";
  request.generation.plain = true;
  auto& prompt = request.generation.prompt;
  prompt.assign(static_cast<std::size_t>(asked.prompt), 5);
  prompt.front() = kCountsFrom + static_cast<TokenId>(asked.answer);
  prompt.back() = kPromptEnd;
  SamplingParams& sampling = request.generation.sampling;
  sampling.temperature = 0;
  sampling.ignore_eos = true;
  sampling.max_tokens = asked.end == End::length ? asked.answer : 1000;
  if (asked.end == End::id) sampling.stop_ids = small_tokenizer().encode("X");
  if (asked.end == End::text) sampling.stop = {"X"};
  return request;
}

/// "b" over and over, and "X" where the prompt's first token says that the answer ends.
void say_as_asked(const std::vector<TokenId>& tokens, std::vector<float>& logits) {
  static const TokenId b = small_tokenizer().encode("b")[0], x = small_tokenizer().encode("X")[0];
  const auto said = std::find(tokens.rbegin(), tokens.rend(), kPromptEnd) - tokens.rbegin();
  const bool last = said + 1 == tokens.front() - kCountsFrom;
  logits[static_cast<std::size_t>(last ? x : b)] = 1;
}

}  // namespace

TEST_CASE("the loop does what its model does, whatever ends, is cancelled or gives its room back",
          "[cpu][schedule]") {
  const bool overlaps = GENERATE(false, true);
  int all_dropped = 0, all_preemptions = 0;
  for (std::uint64_t round = 0; round < 120; ++round) {
    CAPTURE(round, overlaps);
    std::mt19937_64 random(round);
    const auto from = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    const int chunk = from(1, 12);
    const SchedulerOptions options{from(1, 9), chunk, chunk * from(1, 3)};
    const std::int64_t page = from(1, 6);
    const std::int64_t pages = (40 + page - 1) / page + from(0, 40);  // enough for one
    FakeEngine engine;
    engine.set_logits(say_as_asked);
    engine.set_overlaps(overlaps);
    engine.set_pages(pages, page);
    Scheduler scheduler(engine, small_tokenizer(), options);
    SchedulerModel model(overlaps, options, pages, page);
    std::vector<std::int64_t> order;
    std::vector<RequestId> ids;
    bool more = true;
    while (ids.size() < 40 || more) {
      for (int arrivals = from(0, 4); arrivals > 0 && ids.size() < 40; --arrivals) {
        const ModelRequest asked{from(2, 20), from(1, 15), static_cast<End>(from(0, 2))};
        ScheduledRequest request = as_request(asked);
        request.on_finish = [&order, id = std::ssize(ids), asked](const GenerationResult& result) {
          order.push_back(id);
          if (result.finish_reason == FinishReason::cancelled) return;
          CHECK(std::ssize(result.tokens) == asked.answer - (asked.end == End::id ? 1 : 0));
          CHECK(result.content.find('X') ==
                (asked.end == End::length ? result.content.size() - 1 : std::string::npos));
        };
        ids.push_back(value_or_throw(scheduler.submit(std::move(request))));
        model.submit(asked);
      }
      if (!ids.empty() && from(0, 7) == 0) {
        const auto which = static_cast<std::size_t>(from(0, static_cast<int>(ids.size()) - 1));
        scheduler.cancel(ids[which]);
        model.cancel(static_cast<std::int64_t>(which));
      }
      if (scheduler.running() + scheduler.waiting() == 0) continue;
      more = scheduler.step();
      REQUIRE(more == model.step());
      REQUIRE(engine.steps() - engine.refused_steps() == model.steps());
      REQUIRE(engine.is_under_way() == (overlaps && more && scheduler.running() > 0));
      REQUIRE(scheduler.totals().preemptions == model.preemptions());
      REQUIRE(scheduler.totals().dropped_tokens == model.dropped());
      REQUIRE(scheduler.totals().generated_tokens == model.said());
      REQUIRE(order == model.order());
    }
    CHECK(order.size() == 40);
    CHECK(engine.live_sequences() == 0);
    all_dropped += model.dropped();
    all_preemptions += model.preemptions();
  }
  CHECK((all_dropped > 100) == overlaps);
  CHECK(all_preemptions > 100);
}

TEST_CASE("the next step is under way before what the newest one brought is told",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(say_as_asked);
  engine.set_overlaps(true);
  Scheduler scheduler(engine, small_tokenizer(), {});
  std::vector<int> begun;  // steps, when each piece of text is heard
  bool ended = false;
  ScheduledRequest request = as_request({4, 5, End::text});
  request.on_delta = [&](const OutputDelta&) { begun.push_back(engine.steps()); };
  request.on_finish = [&](const GenerationResult& result) {
    ended = true;
    CHECK(engine.is_under_way());
    CHECK(result.content == "bbbb");
    CHECK(result.tokens.size() == 5);
  };
  (void)value_or_throw(scheduler.submit(std::move(request)));
  CHECK(scheduler.step());
  // The first piece is told before anything else is done.
  CHECK(begun == std::vector<int>{1});
  CHECK(engine.steps() == 2);
  CHECK(scheduler.step());
  CHECK(begun == std::vector<int>{1, 3});
  CHECK(scheduler.step());
  CHECK(scheduler.step());
  CHECK(scheduler.step());
  CHECK(ended);
  CHECK(engine.steps() == 6);  // one for nothing
  CHECK_FALSE(scheduler.step());
  CHECK(scheduler.totals().dropped_tokens == 1);
  CHECK(scheduler.totals().generated_tokens == 5);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("a sequence that is the caller's holds what was said when its answer is cut off",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(say_as_asked);
  engine.set_overlaps(true);
  const auto way = GENERATE(0, 1, 2);  // cancelled, by its text, by its length
  ScheduledRequest request = as_request({4, way == 0 ? 9 : 4, way == 1 ? End::text : End::length});
  const std::vector<TokenId> prompt = request.generation.prompt;
  const SequenceId sequence = engine.create_sequence();
  request.sequence = sequence;
  GenerationResult result;
  request.on_finish = [&](GenerationResult finished) { result = std::move(finished); };
  Scheduler scheduler(engine, small_tokenizer(), {});
  const RequestId id = value_or_throw(scheduler.submit(std::move(request)));
  for (int steps = 1; scheduler.step(); ++steps) {
    if (way == 0 && steps == 4) scheduler.cancel(id);
  }
  CHECK(result.tokens.size() == 4);
  std::vector<TokenId> held = prompt;
  held.insert(held.end(), result.tokens.begin(), result.tokens.end());
  if (way == 2) held.pop_back();  // the newest was never fed
  CHECK(engine.tokens(sequence) == held);
}

TEST_CASE("a step that fails keeps nothing from being told that came before it",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(say_as_asked);
  engine.set_overlaps(true);
  const bool at_its_end = GENERATE(false, true);
  const auto fail_at_third = [](int step) {
    if (step == 3) throw EngineError(ErrorCode::cuda, "launching a kernel: the card is lost");
  };
  if (at_its_end) {
    engine.set_before_finish(fail_at_third);
  } else {
    engine.set_before_step(fail_at_third);
  }
  std::string heard;
  {
    Scheduler scheduler(engine, small_tokenizer(), {});
    ScheduledRequest request = as_request({4, 9, End::length});
    request.on_delta = [&](const OutputDelta& delta) { heard += delta.content; };
    (void)value_or_throw(scheduler.submit(std::move(request)));
    const auto run = [&] {
      while (scheduler.step()) {
      }
    };
    CHECK_THROWS_WITH(run(), Catch::Contains("the card is lost"));
  }
  CHECK(heard == "bb");
  CHECK(engine.live_sequences() == 0);
  CHECK_FALSE(engine.is_under_way());
}

TEST_CASE("a scheduler that is given up with a step under way waits for it", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_overlaps(true);
  int ended = 0;
  engine.set_before_finish([&](int) { ++ended; });
  {
    Scheduler scheduler(engine, small_tokenizer(), {});
    (void)value_or_throw(scheduler.submit(as_request({4, 9, End::length})));
    CHECK(scheduler.step());
    CHECK(engine.is_under_way());
  }
  CHECK(ended == engine.steps());
  CHECK(engine.live_sequences() == 0);
}
