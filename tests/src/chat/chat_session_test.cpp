#include "src/chat/chat_session.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

ChatSessionOptions options(Thinking thinking = Thinking::none) {
  ChatSessionOptions out;
  out.encoding.thinking = thinking;
  out.sampling.temperature = 0;
  return out;
}

struct Talk {
  explicit Talk(FakeEngine& made, ChatSessionOptions with = options())
      : engine(made), session(made, small_tokenizer(), std::move(with)) {}

  TurnStats ask(const std::string& text) {
    heard = {};
    return value_or_throw(session.ask(
        text, [&](const OutputDelta& delta) { append(heard, delta); }, [] { return false; }));
  }

  FakeEngine& engine;
  ChatSession session;
  OutputDelta heard;
};

/// Tokens of the whole conversation as the official encoder renders it.
std::int64_t rendered_tokens(const ChatSession& session, const ChatSessionOptions& with) {
  ChatEncodingOptions encoding = with.encoding;
  encoding.generation_prompt = false;
  const Prompt prompt = value_or_throw(render_chat(session.messages(), encoding));
  return static_cast<std::int64_t>(encode_prompt(small_tokenizer(), prompt).size());
}

}  // namespace

TEST_CASE("a second turn feeds only what is new", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("hello"));
  Talk talk(engine);
  const TurnStats first = talk.ask("hi");
  CHECK(talk.heard.content == "hello");
  CHECK(first.reused_tokens == 0);
  const std::int64_t fed = engine.tokens_fed();
  const TurnStats second = talk.ask("more");
  // EOS, <｜User｜>, four letters, <｜Assistant｜>, </think>; then the five letters of the answer.
  CHECK(second.prefilled_tokens() == 8);
  CHECK(engine.tokens_fed() - fed == 8 + 5);
  CHECK(second.prompt_tokens == first.prompt_tokens + 5 + 8);
  CHECK(talk.session.messages().size() == 4);
}

TEST_CASE("a conversation that ends in a begun answer is continued", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("hello"));
  Talk talk(engine);
  std::vector<ChatMessage> messages(2);
  messages[0].role = Role::user;
  messages[0].content = "hi";
  messages[1].role = Role::assistant;
  messages[1].content = "he";
  messages[1].continues = true;
  value_or_throw(talk.session.load(messages));
  REQUIRE(talk.session.awaits_answer());
  const auto answer = [&] {
    return talk.session.answer([&](const OutputDelta& delta) { append(talk.heard, delta); },
                               [] { return false; });
  };
  value_or_throw(answer());
  CHECK(talk.heard.content == "llo");
  REQUIRE(talk.session.messages().size() == 2);
  CHECK(talk.session.messages().back().content == "hello");
  CHECK(!talk.session.awaits_answer());
  // Now it is finished: nothing is left to say.
  const auto again = answer();
  REQUIRE(!again);
  CHECK(again.error().message.find("`prefix: true`") != std::string::npos);
}

TEST_CASE("an answer in the model's own cut of tokens is kept as it is", "[cpu][chat]") {
  FakeEngine engine;
  std::vector<TokenId> letters;
  for (const char* letter : {"t", "h", "e"})
    letters.push_back(small_tokenizer().encode(letter)[0]);
  engine.set_logits(scripted(letters));
  Talk talk(engine);
  talk.ask("a");
  CHECK(talk.heard.content == "the");
  CHECK(talk.ask("b").prefilled_tokens() == 5);
}

TEST_CASE("thinking that is dropped goes back to the snapshot before it", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_rollback(2);
  engine.set_logits(scripted_text("a long thought</think>ok"));
  const bool keep = GENERATE(false, true);
  ChatSessionOptions with = options(Thinking::high);
  with.encoding.keep_thinking = keep;
  Talk talk(engine, with);
  const TurnStats first = talk.ask("hi");
  CHECK(talk.heard.reasoning == "a long thought");
  CHECK(talk.heard.content == "ok");
  CHECK(first.thinking_tokens == 13);
  CHECK(first.generated_tokens == 13 + 1 + 2);  // with what ends the thinking
  CHECK(first.answer_tokens == 2);
  const TurnStats second = talk.ask("on");
  if (keep) {
    CHECK(second.reused_tokens == first.prompt_tokens + 13 + 1 + 2);
    CHECK(second.prefilled_tokens() == 6);
  } else {
    CHECK(second.reused_tokens == first.prompt_tokens - 1);
    CHECK(second.prefilled_tokens() == 1 + 2 + 6);  // </think>, the answer again, and what is new
  }
}

TEST_CASE("an answer is the same after any turns as after a fresh prefill", "[cpu][chat]") {
  // A letter that depends on every token so far: one wrong token changes all that follows. No
  // letters that merge, so that a replay cuts earlier answers as they were generated.
  const auto letters = [](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    std::uint64_t hash = 14695981039346656037u;
    std::ptrdiff_t since_think = -1;
    for (const TokenId token : tokens) {
      hash = (hash ^ static_cast<std::uint64_t>(token)) * 1099511628211u;
      since_think = token == control_id("<think>")    ? 0
                    : token == control_id("</think>") ? -1
                    : since_think >= 0                ? since_think + 1
                                                      : -1;
    }
    const char letter = static_cast<char>('a' + (hash >> 32) % 4);
    const TokenId next = since_think >= 5 ? control_id("</think>")
                                          : small_tokenizer().encode(std::string(1, letter)).at(0);
    logits[static_cast<std::size_t>(next)] = 100;
  };
  ChatSessionOptions with = options(GENERATE(Thinking::none, Thinking::high));
  with.encoding.keep_thinking = GENERATE(false, true);
  with.sampling.max_tokens = 12;
  FakeEngine engine;
  engine.set_logits(letters);
  engine.set_max_rollback(GENERATE(0, 3, 1000));
  engine.set_overlaps(GENERATE(false, true));
  Talk talk(engine, with);
  for (const char* question : {"one", "two", "six", "four"})
    talk.ask(question);
  REQUIRE(!talk.heard.content.empty());

  FakeEngine fresh;
  fresh.set_logits(letters);
  Talk replay(fresh, with);
  auto messages = talk.session.messages();
  messages.resize(messages.size() - 2);
  value_or_throw(replay.session.load(messages));
  replay.ask("four");
  CHECK(replay.heard.content == talk.heard.content);
  CHECK(replay.heard.reasoning == talk.heard.reasoning);
}

TEST_CASE("undo takes back a question and its answer without feeding the rest again",
          "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_rollback(0);
  engine.set_logits(scripted_text("ok"));
  Talk talk(engine);
  talk.ask("first question");
  const TurnStats second = talk.ask("second");
  REQUIRE(talk.session.undo());
  CHECK(talk.session.messages().size() == 2);
  const TurnStats other = talk.ask("another");
  // Back to the snapshot at the end of the first prompt.
  CHECK(other.reused_tokens >= second.reused_tokens - 3);
  CHECK(talk.session.undo());
  CHECK(talk.session.undo());
  CHECK(!talk.session.undo());
}

TEST_CASE("a new conversation keeps the system message and its state", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_rollback(1000);
  engine.set_logits(scripted_text("ok"));
  ChatSessionOptions with = options();
  with.system = "a system message of some length";
  Talk talk(engine, with);
  talk.ask("hi");
  talk.session.reset();
  REQUIRE(talk.session.messages().size() == 1);
  const TurnStats again = talk.ask("hi");
  CHECK(again.reused_tokens > 0);
  CHECK(talk.heard.content == "ok");
}

TEST_CASE("an answer that is stopped stays in the conversation", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("a very long answer"));
  const bool overlaps = GENERATE(false, true);
  engine.set_overlaps(overlaps);
  Talk talk(engine);
  int steps = 0;
  const auto stats = value_or_throw(talk.session.ask(
      "hi", [](const OutputDelta&) {}, [&] { return ++steps > 6; }));
  CHECK(stats.finish_reason == FinishReason::cancelled);
  REQUIRE(talk.session.messages().size() == 2);
  CHECK(talk.session.messages()[1].content == "a ver");
  const TurnStats next = talk.ask("go on");
  // The newest letter was never fed, unless the step was under way that brought one more.
  CHECK(next.reused_tokens == stats.prompt_tokens + (overlaps ? 5 : 4));
}

TEST_CASE("a question that is stopped before the first token awaits its answer", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  Talk talk(engine);
  const auto stats = value_or_throw(talk.session.ask(
      "hi", [](const OutputDelta&) {}, [] { return true; }));
  CHECK(stats.finish_reason == FinishReason::cancelled);
  REQUIRE(talk.session.messages().size() == 1);
  CHECK(talk.session.awaits_answer());
  (void)value_or_throw(talk.session.answer([](const OutputDelta&) {}, [] { return false; }));
  REQUIRE(talk.session.messages().size() == 2);
  CHECK(talk.session.messages()[1].content == "ok");
}

TEST_CASE("chunks of a prompt follow the time that a step may take", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  const bool slow = GENERATE(false, true);
  if (slow) {
    engine.set_before_step([](int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  }
  ChatSessionOptions with = options();
  with.step_s = slow ? 0.005 : 100;
  Talk talk(engine, with);
  std::vector<std::int64_t> chunks;
  std::int64_t before = 0;
  const auto stats = value_or_throw(talk.session.ask(
      std::string(slow ? 40 : 2000, 'q'), [](const OutputDelta&) {},
      [&] { return chunks.size() == 8; },
      [&](std::int64_t done, std::int64_t) {
        chunks.push_back(done - before);
        before = done;
      }));
  REQUIRE(chunks.size() >= 6);
  CHECK(chunks[0] == 16);
  if (slow) {
    CHECK(stats.finish_reason == FinishReason::cancelled);
    CHECK(chunks[4] == 1);
  } else {
    CHECK(*std::max_element(chunks.begin(), chunks.end()) > 256);
    CHECK(engine.steps() < 16);
  }
}

TEST_CASE("a question that does not fit leaves the conversation as it was", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_context(40);
  engine.set_logits(scripted_text("ok"));
  Talk talk(engine);
  talk.ask("hi");
  const auto refused = talk.session.ask(
      std::string(100, 'x'), [](const OutputDelta&) {}, [] { return false; });
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(talk.session.messages().size() == 2);
  talk.ask("ho");
  CHECK(talk.heard.content == "ok");
}

TEST_CASE("a conversation never takes more of the context than there is", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_context(24);
  const bool thinks = GENERATE(false, true);
  engine.set_logits(scripted_text(std::string(100, 'z')));
  const ChatSessionOptions with = options(thinks ? Thinking::high : Thinking::none);
  Talk talk(engine, with);
  const TurnStats full = talk.ask("hi");
  CHECK(full.context_tokens == 24);
  CHECK(full.finish_reason == FinishReason::length);
  CHECK(talk.session.context_tokens() == 24);
  const auto stop_never = [] { return false; };
  CHECK(!talk.session.ask(
      std::string(30, 'x'), [](const OutputDelta&) {}, stop_never));
  CHECK(talk.session.context_tokens() == 24);
  CHECK(talk.session.held_tokens() <= 24);
  // The same when it comes back from a file, with its state and without.
  const auto saved = talk.session.save_sequences();
  Talk other(engine, with);
  value_or_throw(other.session.restore_messages(talk.session.messages()));
  CHECK(other.session.context_tokens() == 24);
  value_or_throw(other.session.restore_sequences(saved));
  CHECK(other.session.context_tokens() == 24);
  // Nor does an attempt in vain to answer once more change it.
  CHECK(talk.session.retry([](const OutputDelta&) {}, [] { return true; }).has_value());
  CHECK(talk.session.context_tokens() == 24);
  REQUIRE(talk.session.undo());
  CHECK(talk.session.context_tokens() == 0);
}

TEST_CASE("what a conversation takes of the context is the same after its last answer as later",
          "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("hm</think>ok"));
  const ChatSessionOptions with = options(GENERATE(Thinking::none, Thinking::high));
  Talk talk(engine, with);
  talk.ask("hi");
  const TurnStats second = talk.ask("ho");
  Talk other(engine, with);
  value_or_throw(other.session.restore_messages(talk.session.messages()));
  value_or_throw(other.session.restore_sequences(talk.session.save_sequences()));
  CHECK(other.session.context_tokens() == second.context_tokens);
}

TEST_CASE("a question ends an answer that was to be continued", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  Talk talk(engine);
  value_or_throw(talk.session.load(value_or_throw(parse_chat_messages(
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "be", "prefix": true}])",
      "test"))));
  engine.set_max_context(8);
  CHECK(!talk.session.ask(
      std::string(50, 'x'), [](const OutputDelta&) {}, [] { return false; }));
  CHECK(talk.session.awaits_answer());  // as it was
  engine.set_max_context(1000);
  talk.ask("more");
  REQUIRE(talk.session.messages().size() == 4);
  CHECK(!talk.session.messages()[1].continues);
  CHECK(rendered_tokens(talk.session, options()) == talk.session.context_tokens() + 1);
}

TEST_CASE("a loaded conversation is continued", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  ChatSessionOptions with = options();
  with.system = "replaced by the file's own";
  Talk talk(engine, with);
  auto messages = value_or_throw(parse_chat_messages(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])", "test"));
  value_or_throw(talk.session.load(messages));
  CHECK(talk.session.awaits_answer());
  value_or_throw(talk.session.answer([](const OutputDelta&) {}, [] { return false; }));
  REQUIRE(talk.session.messages().size() == 3);
  CHECK(talk.session.messages()[0].content == "s");
  CHECK(!talk.session.awaits_answer());
}

TEST_CASE("a conversation with roles out of order is refused and changes nothing", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  Talk talk(engine);
  talk.ask("hi");
  const auto read = [&](std::string_view json) -> Result<void> {
    auto messages = parse_chat_messages(json, "test");
    if (!messages) return Unexpected(messages.error());
    return talk.session.load(std::move(*messages));
  };
  for (const char* json : {
           R"([{"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}])",
           R"([{"role": "tool", "tool_call_id": "x", "content": "a"}])",
           R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"},
               {"role": "assistant", "content": "b"}])",
       }) {
    CAPTURE(json);
    const auto refused = read(json);
    REQUIRE(!refused);
    CHECK(refused.error().code == ErrorCode::invalid_argument);
    CHECK(talk.session.messages().size() == 2);
  }
}

TEST_CASE("sequences are given back when a session ends", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  {
    Talk talk(engine);
    for (int i = 0; i < 10; ++i)
      talk.ask("question");
    CHECK(engine.live_sequences() <= 5);  // one live, four snapshots
    CHECK(rendered_tokens(talk.session, options()) > 0);
  }
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("trying again feeds the last token of the prompt alone", "[cpu][chat]") {
  FakeEngine engine;
  Talk talk(engine);
  (void)talk.ask("hi");
  const std::int64_t fed = engine.tokens_fed();
  const TurnStats stats =
      value_or_throw(talk.session.retry([](const OutputDelta&) {}, [] { return false; }));
  CHECK(stats.prefilled_tokens() == 1);
  CHECK(engine.tokens_fed() - fed == 1 + stats.answer_tokens);
  CHECK(talk.session.messages().size() == 2);
}

TEST_CASE("an answer that is tried again in vain stays", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("hello"));
  Talk talk(engine);
  CHECK(!talk.session.retry([](const OutputDelta&) {}, [] { return false; }));
  (void)talk.ask("hi");
  const auto before = talk.session.messages();
  (void)value_or_throw(talk.session.retry([](const OutputDelta&) {}, [] { return true; }));
  CHECK(talk.session.messages() == before);
}

TEST_CASE("a long prompt that is stopped midway costs nothing of what was there", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("hello"));
  ChatSessionOptions with = options();
  with.scheduler.prefill_chunk = 16;
  engine.set_overlaps(GENERATE(false, true));
  Talk talk(engine, with);
  (void)talk.ask("hi");
  const std::string question(100, 'q');
  int steps = 0;
  std::vector<std::int64_t> progress;
  (void)value_or_throw(talk.session.ask(
      question, [](const OutputDelta&) {}, [&] { return ++steps > 3; },
      [&](std::int64_t done, std::int64_t all) {
        CHECK(all > 100);
        progress.push_back(done);
      }));
  CHECK(progress.size() == 3);
  CHECK(talk.session.messages().size() == 3);
  CHECK(talk.session.undo());
  // The same question goes on where it was stopped.
  FakeEngine* const same = &engine;
  const std::int64_t fed = same->tokens_fed();
  const TurnStats again = talk.ask(question);
  CHECK(again.reused_tokens >= progress.back());
  CHECK(engine.tokens_fed() - fed < 100);
  // Another one goes back to before it.
  CHECK(talk.session.undo());
  const TurnStats other = talk.ask("no");
  CHECK(other.prefilled_tokens() ==
        1 + 1 + 2 + 2);  // EOS, <｜User｜>, no, the two that end a prompt
}

TEST_CASE("going back twice from the longest is not beyond the engine's reach", "[cpu][chat]") {
  FakeEngine engine;
  engine.set_max_rollback(8);
  engine.set_logits(scripted_text("abc"));
  Talk talk(engine);
  for (const char* text : {"one", "two", "three", "four", "five", "six", "seven"})
    (void)talk.ask(text);
  for (int i = 0; i < 6; ++i) {
    CHECK(talk.session.undo());
    // Stopped at once: nothing is fed, but the sequence has been taken back.
    (void)value_or_throw(talk.session.ask(
        "x", [](const OutputDelta&) {}, [] { return true; }));
  }
  CHECK(talk.ask("end").answer_tokens == 3);
}

TEST_CASE("a saved session goes on in another engine without being fed again", "[cpu][chat]") {
  FakeEngine engine;
  Talk talk(engine);
  (void)talk.ask("one");
  (void)talk.ask("two");
  const auto saved = talk.session.save_sequences();
  REQUIRE(saved.size() == 2);

  FakeEngine later;
  ChatSession session(later, small_tokenizer(), options());
  value_or_throw(session.restore_messages(talk.session.messages()));
  value_or_throw(session.restore_sequences(saved));
  CHECK(later.live_sequences() == 2);
  CHECK(session.held_tokens() == talk.session.held_tokens());
  std::string here, there;
  const auto ask = [](ChatSession& in, std::string& answer) {
    return value_or_throw(in.ask(
        "three", [&](const OutputDelta& delta) { answer += delta.content; }, [] { return false; }));
  };
  const TurnStats stats = ask(session, there);
  CHECK(later.tokens_fed() == stats.prefilled_tokens() + stats.answer_tokens);
  CHECK(stats.reused_tokens == ask(talk.session, here).reused_tokens);
  CHECK(there == here);
  // The last turn of the file can be taken back, too.
  CHECK(session.undo());
  CHECK(session.undo());
  const std::int64_t fed = later.tokens_fed();
  (void)value_or_throw(session.ask(
      "2", [](const OutputDelta&) {}, [] { return true; }));
  CHECK(later.tokens_fed() - fed == 0);
}

TEST_CASE("a state that does not fit is left out, and the conversation is fed again",
          "[cpu][chat]") {
  FakeEngine engine;
  Talk talk(engine);
  (void)talk.ask("one");
  auto saved = talk.session.save_sequences();
  FakeEngine later;
  ChatSession session(later, small_tokenizer(), options());
  value_or_throw(session.restore_messages(talk.session.messages()));
  SECTION("tokens that are not the state's") {
    saved[0].tokens.resize(1);
    CHECK(!session.restore_sequences(saved));
  }
  SECTION("a token outside the vocabulary") {
    saved[0].tokens[0] = 1 << 20;
    CHECK(!session.restore_sequences(saved));
  }
  SECTION("an engine that keeps nothing") {
    later.set_can_snapshot(false);
    CHECK(!session.restore_sequences(saved));
    CHECK(session.save_sequences().empty());
  }
  SECTION("no state at all") {
    CHECK(session.restore_sequences({}));
  }
  CHECK(later.live_sequences() == 0);
  const TurnStats stats = value_or_throw(session.ask(
      "two", [](const OutputDelta&) {}, [] { return false; }));
  CHECK(stats.reused_tokens == 0);
}

TEST_CASE("a branch goes its own way from where it began", "[cpu][chat]") {
  FakeEngine engine;
  {
    Talk talk(engine);
    (void)talk.ask("one");
    const auto branch = talk.session.branch();
    const auto before = talk.session.messages();
    const TurnStats there = value_or_throw(branch->ask(
        "two", [](const OutputDelta&) {}, [] { return false; }));
    CHECK(talk.session.messages() == before);
    const TurnStats here = talk.ask("two");
    CHECK(here.reused_tokens == there.reused_tokens);
    CHECK(here.reused_tokens > 0);
    CHECK(branch->messages() == talk.session.messages());
    branch->release_state();
    CHECK(branch->held_tokens() == 0);
  }
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("an engine without room refuses the turn and gets this session's back", "[cpu][chat]") {
  FakeEngine engine;
  Talk talk(engine);
  (void)talk.ask("one");
  Talk other(engine);
  (void)other.ask("two");
  engine.set_max_sequences(engine.live_sequences());
  const auto before = talk.session.messages();
  // The snapshot of the next prompt has no place.
  const auto refused = talk.session.ask(
      "more", [](const OutputDelta&) {}, [] { return false; });
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::exhausted);
  CHECK(talk.session.messages() == before);
  CHECK(talk.session.held_tokens() == 0);
  // A branch takes what there is room for.
  const auto branch = other.session.branch();
  CHECK(branch->held_tokens() == other.session.held_tokens());
  branch->release_state();
  CHECK(talk.ask("more").reused_tokens == 0);
}

TEST_CASE("the engine hears what the next turn may need, and its failure stays its own",
          "[cpu][chat]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("ok"));
  engine.set_max_context(3000);
  ChatSessionOptions with = options();
  with.scheduler.prefill_chunk = 64;
  std::vector<StepForecast> heard;
  engine.set_prepare([&](const StepForecast& forecast) {
    heard.push_back(forecast);
    return heard.size() < 3;
  });
  Talk talk(engine, with);
  while (talk.session.prepare_turn()) {
  }
  REQUIRE(heard.size() == 3);
  CHECK(heard[2].from == 0);
  CHECK(heard[2].to == 2048);
  CHECK(heard[2].chunk == 64);
  CHECK(heard[2].offered);
  CHECK(!heard[2].asked);
  const TurnStats turn = talk.ask(std::string(2000, 'q'));
  SamplingParams sampling = with.sampling;
  sampling.thinking_budget = 10;
  talk.session.set_sampling(sampling);
  CHECK(!talk.session.prepare_turn());
  CHECK(heard[3].from == turn.context_tokens);
  CHECK(heard[3].to == 3000);
  CHECK(heard[3].asked);  // where thinking is closed, the engine does not choose
  engine.set_prepare(
      [](const StepForecast&) -> bool { throw EngineError(ErrorCode::cuda, "no memory"); });
  CHECK(!talk.session.prepare_turn());
}
