#include "src/schedule/scheduler.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<TokenId> chat_prompt(const std::string& question, bool thinking = false) {
  return small_tokenizer().encode("<｜begin▁of▁sentence｜><｜User｜>" + question +
                                      "<｜Assistant｜>" + (thinking ? "<think>" : "</think>"),
                                  AddedTokens::recognise);
}

ScheduledRequest request(std::vector<TokenId> prompt, GenerationResult& result,
                         SamplingParams sampling = {}, bool thinking = false) {
  ScheduledRequest out;
  out.generation.name = "test";
  out.generation.prompt = std::move(prompt);
  out.generation.thinking = thinking;
  out.generation.sampling = std::move(sampling);
  out.on_finish = [&result](GenerationResult finished) { result = std::move(finished); };
  return out;
}

GenerationResult generate(FakeEngine& engine, std::vector<TokenId> prompt, SamplingParams sampling,
                          bool thinking = false) {
  Scheduler scheduler(engine, small_tokenizer(), {});
  GenerationResult result;
  value_or_throw(
      scheduler.submit(request(std::move(prompt), result, std::move(sampling), thinking)));
  while (scheduler.step()) {
  }
  return result;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

}  // namespace

TEST_CASE("an answer ends at the model's own end and counts tokens as the API does",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("the answer"));
  const auto result = generate(engine, chat_prompt("q"), greedy());
  CHECK(result.content == "the answer");
  CHECK(result.reasoning.empty());
  CHECK(result.finish_reason == FinishReason::stop);
  CHECK(result.end_token == 1);
  CHECK(result.prompt_tokens == 5);
  CHECK(result.tokens.size() == 8);  // "the" is one token, the others are bytes
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("a model that begins a user's turn is stopped there", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("yes<｜User｜>no"));
  CHECK(generate(engine, chat_prompt("q"), greedy()).content == "yes");
  SamplingParams params = greedy();
  params.ignore_eos = true;
  params.max_tokens = 5;
  const auto result = generate(engine, chat_prompt("q"), params);
  CHECK(result.finish_reason == FinishReason::length);
  CHECK(result.tokens.size() == 5);
}

TEST_CASE("max_tokens ends an answer with length", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("abcdefgh"));
  SamplingParams params = greedy();
  params.max_tokens = 3;
  const auto result = generate(engine, chat_prompt("q"), params);
  CHECK(result.content == "abc");
  CHECK(result.finish_reason == FinishReason::length);
  CHECK(!result.end_token);
}

TEST_CASE("more tokens than the context has left are clipped", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("abcdefgh"));
  engine.set_max_context(9);
  SamplingParams params = greedy();
  params.max_tokens = 1000;
  const auto result = generate(engine, chat_prompt("q"), params);  // 5 tokens of prompt
  CHECK(result.content == "abcd");
  CHECK(result.finish_reason == FinishReason::length);
}

TEST_CASE("a prompt that fills the context is refused with both numbers", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_max_context(5);
  Scheduler scheduler(engine, small_tokenizer(), {});
  GenerationResult result;
  const auto refused = scheduler.submit(request(chat_prompt("q"), result));
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(refused.error().message.find("5 tokens") != std::string::npos);
  CHECK(!scheduler.submit(request({}, result)));
  CHECK(!scheduler.submit(request({299, 300}, result)));
  CHECK(!scheduler.step());
}

TEST_CASE("stop strings end the answer and are never emitted, wherever tokens are cut",
          "[cpu][schedule]") {
  FakeEngine engine;
  SamplingParams params = greedy();
  engine.set_logits(scripted_text("one. the end. more"));
  params.stop = {" the e"};
  auto result = generate(engine, chat_prompt("q"), params);
  CHECK(result.content == "one.");
  CHECK(result.finish_reason == FinishReason::stop);
  // A character of three bytes, one token each.
  engine.set_logits(scripted_text("a终b"));
  params.stop = {"终"};
  CHECK(generate(engine, chat_prompt("q"), params).content == "a");
  params.stop = {"绊"};  // shares the first bytes
  CHECK(generate(engine, chat_prompt("q"), params).content == "a终b");
}

TEST_CASE("stop strings are looked for in the answer, not in the thinking", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("think X think</think>say X no"));
  SamplingParams params = greedy();
  params.stop = {"X"};
  const auto result = generate(engine, chat_prompt("q", true), params, true);
  CHECK(result.reasoning == "think X think");
  CHECK(result.content == "say ");
}

TEST_CASE("what a stop string might have become is released at the end", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("go STO"));
  SamplingParams params = greedy();
  params.stop = {"STOP"};
  CHECK(generate(engine, chat_prompt("q"), params).content == "go STO");
}

TEST_CASE("stop ids end the answer", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ab!cd"));
  SamplingParams params = greedy();
  params.stop_ids = {small_tokenizer().encode("!").at(0)};
  const auto result = generate(engine, chat_prompt("q"), params);
  CHECK(result.content == "ab");
  CHECK(result.end_token == params.stop_ids[0]);
}

TEST_CASE("a spent thinking budget closes the thinking and goes on to the answer",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_overlaps(GENERATE(false, true));
  if (GENERATE(false, true)) engine.set_samples([](const SamplingParams&) { return true; });
  const TokenId think_end = control_id(control::kThinkEnd);
  // Thinks for ever; once the thinking is closed, it says "ok".
  engine.set_logits([&](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    const auto closed = std::find(tokens.begin(), tokens.end(), think_end);
    const auto said = closed == tokens.end() ? -1 : tokens.end() - closed - 1;
    const TokenId next = said < 0    ? small_tokenizer().encode("z").at(0)
                         : said == 0 ? small_tokenizer().encode("o").at(0)
                         : said == 1 ? small_tokenizer().encode("k").at(0)
                                     : 1;
    logits[static_cast<std::size_t>(next)] = 100;
  });
  SamplingParams params = greedy();
  const int budget = GENERATE(0, 1, 5);
  CAPTURE(budget);
  params.thinking_budget = budget;
  params.max_tokens = 50;
  params.top_logprobs = 1;
  const auto result = generate(engine, chat_prompt("q", true), params, true);
  CHECK(result.reasoning == std::string(static_cast<std::size_t>(budget), 'z'));
  CHECK(result.content == "ok");
  CHECK(result.finish_reason == FinishReason::stop);
  CHECK(result.thinking_tokens == budget);
  REQUIRE(result.tokens.size() == static_cast<std::size_t>(budget) + 3);
  CHECK(result.thinking_ended);
  CHECK(result.answer_begin() == budget + 1);
  CHECK(result.tokens[static_cast<std::size_t>(budget)] == think_end);
  REQUIRE(result.logprobs.size() == result.tokens.size());
  CHECK(result.logprobs[static_cast<std::size_t>(budget)].id == think_end);
}

TEST_CASE("thinking that ends by itself, or is cut off, is counted without its end",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("zzz</think>ok"));
  SamplingParams params = greedy();
  if (GENERATE(false, true)) params.thinking_budget = 7;
  auto result = generate(engine, chat_prompt("q", true), params, true);
  CHECK(result.thinking_tokens == 3);
  CHECK(result.answer_begin() == 4);
  CHECK(result.tokens.size() == 6);
  params.max_tokens = 2;
  result = generate(engine, chat_prompt("q", true), params, true);
  CHECK(result.thinking_tokens == 2);
  CHECK(!result.thinking_ended);
  CHECK(result.answer_begin() == 2);
}

TEST_CASE("a text cut inside a character ends with one replacement character", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("a😀"));
  SamplingParams params = greedy();
  params.max_tokens = 3;
  CHECK(generate(engine, chat_prompt("q"), params).content == "a\xEF\xBF\xBD");
}

TEST_CASE("deltas join to the whole text", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("some </thinking> 😀 text</think>an answer 终 here"));
  Scheduler scheduler(engine, small_tokenizer(), {});
  GenerationResult result;
  OutputDelta joined;
  ScheduledRequest scheduled = request(chat_prompt("q", true), result, greedy(), true);
  scheduled.on_delta = [&](const OutputDelta& delta) {
    CHECK(!delta.empty());
    append(joined, delta);
  };
  value_or_throw(scheduler.submit(std::move(scheduled)));
  while (scheduler.step()) {
  }
  CHECK(joined.reasoning == result.reasoning);
  CHECK(joined.content == result.content);
  CHECK(result.reasoning == "some </thinking> 😀 text");
  CHECK(result.content == "an answer 终 here");
}

TEST_CASE("tool calls are parsed and are the reason of the end", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text(
      "Let me look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get\">\n<｜DSML｜parameter "
      "name=\"city\" string=\"true\">the town</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
      "</｜DSML｜tool_calls>"));
  SamplingParams params = greedy();
  params.stop = {"the"};  // inside a call it is no stop string
  const auto result = generate(engine, chat_prompt("q"), params);
  CHECK(result.finish_reason == FinishReason::tool_calls);
  CHECK(result.content == "Let me look.");
  REQUIRE(result.tool_calls.size() == 1);
  CHECK(result.tool_calls[0].name == "get");
  CHECK(result.tool_calls[0].arguments.find("the town") != std::string::npos);
}

TEST_CASE("the text of a request does not depend on its neighbours, the batch or their order",
          "[cpu][schedule]") {
  constexpr int kRequests = 24;
  SamplingParams params;
  params.max_tokens = 30;
  params.temperature = GENERATE(0.0, 1.0);
  const auto prompt = [](int i) {
    return chat_prompt("question " + std::string(static_cast<std::size_t>(i) * 7 % 50, 'x') +
                       std::to_string(i));
  };
  std::map<int, std::vector<TokenId>> alone;
  for (int i = 0; i < kRequests; ++i) {
    FakeEngine engine;
    params.seed = static_cast<std::uint64_t>(i);
    alone[i] = generate(engine, prompt(i), params).tokens;
  }
  const SchedulerOptions options = GENERATE(
      SchedulerOptions{1, 512, 512}, SchedulerOptions{5, 7, 7}, SchedulerOptions{64, 16, 100});
  const bool reversed = GENERATE(false, true);
  FakeEngine engine;
  Scheduler scheduler(engine, small_tokenizer(), options);
  std::map<int, GenerationResult> results;
  for (int k = 0; k < kRequests; ++k) {
    const int i = reversed ? kRequests - 1 - k : k;
    params.seed = static_cast<std::uint64_t>(i);
    value_or_throw(scheduler.submit(request(prompt(i), results[i], params)));
    if (k % 3 == 0) scheduler.step();
  }
  while (scheduler.step()) {
  }
  for (int i = 0; i < kRequests; ++i) {
    CAPTURE(i);
    CHECK(results[i].tokens == alone[i]);
  }
  CHECK(engine.live_sequences() == 0);
  CHECK(engine.widest_batch() <= static_cast<std::size_t>(options.max_batch));
}

TEST_CASE("chunks of a prompt share steps with running answers", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text(std::string(40, 'a')));
  Scheduler scheduler(engine, small_tokenizer(), {4, 8, 8});
  GenerationResult first, second;
  value_or_throw(scheduler.submit(request(chat_prompt("q"), first, greedy())));
  scheduler.step();
  value_or_throw(scheduler.submit(request(chat_prompt(std::string(75, 'q')), second, greedy())));
  int steps = 0;
  while (scheduler.step())
    ++steps;
  CHECK(first.content == std::string(40, 'a'));
  CHECK(second.content == std::string(40, 'a'));
  // 80 tokens in chunks of 8, then 41 answers: the first answer did not wait for the prompt.
  CHECK(steps <= 10 + 41);
}

TEST_CASE("short requests do not wait for the end of a long prompt, nor it for theirs",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("yes"));
  Scheduler scheduler(engine, small_tokenizer(), {4, 8, 8});
  GenerationResult long_result;
  bool long_done = false;
  auto long_request = request(chat_prompt(std::string(795, 'q')), long_result, greedy());
  long_request.on_finish = [&](GenerationResult) { long_done = true; };
  value_or_throw(scheduler.submit(std::move(long_request)));
  std::vector<GenerationResult> results(60);
  for (GenerationResult& result : results)
    value_or_throw(scheduler.submit(request(chat_prompt("q"), result, greedy())));
  int steps = 0;
  int short_steps = 0;
  while (scheduler.step()) {
    ++steps;
    if (results[2].tokens.empty()) short_steps = steps;
    // 100 chunks, each beside at most one step of the others' prompts.
    if (!long_done) REQUIRE(steps <= 2 * 100 + 4);
  }
  CHECK(short_steps <= 8);
  CHECK(long_done);
  for (const GenerationResult& result : results)
    CHECK(result.content == "yes");
}

TEST_CASE("a cancelled request ends with what it has and leaves nothing behind",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("abcdefgh"));
  Scheduler scheduler(engine, small_tokenizer(), {1, 512, 512});
  GenerationResult running, waiting;
  const auto id = value_or_throw(scheduler.submit(request(chat_prompt("q"), running, greedy())));
  value_or_throw(scheduler.submit(request(chat_prompt("q"), waiting, greedy())));
  scheduler.step();
  scheduler.step();
  scheduler.cancel(id);
  CHECK(scheduler.step());  // the other one takes its place
  CHECK(running.finish_reason == FinishReason::cancelled);
  CHECK(running.content == "ab");
  scheduler.cancel_all();
  CHECK(!scheduler.step());
  CHECK(waiting.finish_reason == FinishReason::cancelled);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("NaN logits fail their own request, by name, and no other", "[cpu][schedule]") {
  FakeEngine engine;
  const TokenId marker = small_tokenizer().encode("!").at(0);
  const auto good = scripted_text("fine");
  engine.set_logits([&](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    good(tokens, logits);
    if (std::find(tokens.begin(), tokens.end(), marker) != tokens.end()) {
      logits[7] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  Scheduler scheduler(engine, small_tokenizer(), {});
  GenerationResult bad_result, good_result;
  value_or_throw(scheduler.submit(request(chat_prompt("!"), bad_result, greedy())));
  value_or_throw(scheduler.submit(request(chat_prompt("?"), good_result, greedy())));
  while (scheduler.step()) {
  }
  CHECK(bad_result.finish_reason == FinishReason::error);
  REQUIRE(bad_result.error);
  CHECK(bad_result.error->message.find("test, position 5") == 0);
  CHECK(good_result.content == "fine");
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("an answer can go on from a sequence and hand out a snapshot on the way",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  const auto prompt = chat_prompt("a long question");
  const SequenceId sequence = engine.create_sequence();
  const SequenceStep begun{sequence, std::span(prompt).first(4), LogitsOf::none};
  engine.step({&begun, 1});
  Scheduler scheduler(engine, small_tokenizer(), {1, 5, 5});
  GenerationResult result;
  ScheduledRequest scheduled = request(prompt, result, greedy());
  scheduled.sequence = sequence;
  scheduled.snapshot_at = static_cast<std::int64_t>(prompt.size()) - 1;
  SequenceId snapshot{};
  scheduled.on_snapshot = [&](SequenceId id) { snapshot = id; };
  value_or_throw(scheduler.submit(std::move(scheduled)));
  while (scheduler.step()) {
  }
  CHECK(result.content == "ok");
  CHECK(engine.tokens(snapshot) == std::vector<TokenId>(prompt.begin(), prompt.end() - 1));
  CHECK(engine.length(sequence) == static_cast<std::int64_t>(prompt.size()) + 2);
  CHECK(engine.live_sequences() == 2);  // both are the caller's
}
