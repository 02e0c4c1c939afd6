#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "src/reference/sequence_state.hpp"
#include "tests/src/reference/oracle_dump.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

using Tokens = std::vector<TokenId>;

StepLogits run(ReferenceEngine& engine, SequenceId sequence, std::span<const TokenId> tokens,
               LogitsOf logits = LogitsOf::last) {
  const SequenceStep step{sequence, tokens, logits};
  return std::move(engine.step({&step, 1})[0]);
}

/// Gives the tokens in chunks; logits of all of them, one row after another.
std::vector<float> run_in_chunks(ReferenceEngine& engine, SequenceId sequence, const Tokens& tokens,
                                 std::size_t chunk) {
  std::vector<float> logits;
  for (std::size_t i = 0; i < tokens.size(); i += chunk) {
    const auto part = std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i));
    const StepLogits rows = run(engine, sequence, part, LogitsOf::all);
    logits.insert(logits.end(), rows.values.begin(), rows.values.end());
  }
  return logits;
}

double relative_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(difference / norm);
}

std::size_t best(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

TEST_CASE("logits over a prompt agree with the oracle's", "[cpu][reference]") {
  const std::string name = GENERATE("tiny", "tiny-tp", "mix");
  CAPTURE(name);
  const OracleDump dump(golden_dump(name));
  const SyntheticModel model(name);
  ReferenceEngine engine = model.engine({.threads = 2});
  const StepLogits logits = run(engine, engine.create_sequence(), dump.tokens(), LogitsOf::all);
  const DumpTensor& want = dump.at("logits");
  REQUIRE(logits.rows == want.rows());
  std::vector<double> errors;
  int same_best = 0;
  for (int r = 0; r < logits.rows; ++r) {
    const std::span<const float> row(want.row(r), want.width());
    errors.push_back(relative_error(logits.row(r), row));
    if (best(logits.row(r)) == best(row)) ++same_best;
  }
  // Random weights amplify a rounding that falls the other way: a whole model is right
  // statistically.
  CHECK(median(errors) < 0.10);
  CHECK(same_best >= logits.rows * 85 / 100);
}

TEST_CASE("greedy continuations follow the oracle wherever its choice is clear",
          "[cpu][reference]") {
  const std::string name = GENERATE("tiny", "tiny-tp", "mix");
  CAPTURE(name);
  const OracleDump dump(golden_dump(name));
  const SyntheticModel model(name);
  ReferenceEngine engine = model.engine({.threads = 2});
  const SequenceId sequence = engine.create_sequence();
  const auto tokens_of = [&](const char* tensor) {
    const std::vector<float>& ids = dump.at(tensor).values;
    return Tokens(ids.begin(), ids.end());
  };
  Tokens next = tokens_of("greedy_prompt");
  const Tokens want = tokens_of("greedy_tokens");
  const DumpTensor& gaps = dump.at("greedy_gaps");  // best logit, second best, rms of all
  int clear = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    const StepLogits logits = run(engine, sequence, next);
    const float* gap = gaps.row(static_cast<std::int64_t>(i));
    // Clear: a gap beyond what the statistical error of a logit, a tenth of their rms, can close.
    if (gap[0] - gap[1] > 0.3F * gap[2]) {
      ++clear;
      CHECK(best(logits.row(0)) == static_cast<std::size_t>(want[i]));
    }
    next = {want[i]};
  }
  CHECK(clear >= 5);
}

TEST_CASE("the result does not depend on how a prompt is cut", "[cpu][reference]") {
  const std::string name = GENERATE("tiny", "mix");
  CAPTURE(name);
  const SyntheticModel model(name);
  ReferenceEngine engine = model.engine({.threads = 2});
  const Tokens tokens = some_tokens(engine.config().vocab_size, name == "tiny" ? 262 : 134);
  const SequenceId whole = engine.create_sequence();
  const std::vector<float> want = run_in_chunks(engine, whole, tokens, tokens.size());
  for (const std::size_t chunk : {1, 3, 4, 5, 127, 128, 129}) {
    CAPTURE(chunk);
    const SequenceId sequence = engine.create_sequence();
    CHECK(run_in_chunks(engine, sequence, tokens, chunk) == want);
    CHECK(engine.state(sequence).same_as(engine.state(whole)));
    engine.release(sequence);
  }
}

TEST_CASE("only the last token's logits, or none, change nothing else", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1});
  const Tokens tokens = some_tokens(engine.config().vocab_size, 270);
  const SequenceId all = engine.create_sequence();
  const SequenceId last = engine.create_sequence();
  const SequenceId none = engine.create_sequence();
  const StepLogits all_logits = run(engine, all, tokens, LogitsOf::all);
  const StepLogits last_logits = run(engine, last, tokens, LogitsOf::last);
  CHECK(all_logits.rows == 270);
  REQUIRE(last_logits.rows == 1);
  CHECK(run(engine, none, tokens, LogitsOf::none).rows == 0);
  CHECK(std::ranges::equal(last_logits.row(0), all_logits.row(269)));
  CHECK(engine.state(last).same_as(engine.state(all)));
  CHECK(engine.state(none).same_as(engine.state(all)));
}

TEST_CASE("other sequences in the batch change no bit", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const int vocab = engine.config().vocab_size;
  // Every length mod 4; around the window, blocks of 128, and 4 · top-k of the model's 16.
  const std::vector<std::size_t> lengths = {1,  2,   3,   4,   5,   6,   7,   63,  64,
                                            65, 127, 128, 129, 255, 256, 257, 130, 131};
  std::vector<Tokens> prompts;
  std::vector<SequenceStep> batch;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    prompts.push_back(some_tokens(vocab, lengths[i] + 1, i + 1));
  }
  for (const Tokens& prompt : prompts) {
    batch.push_back(
        {engine.create_sequence(), std::span(prompt).first(prompt.size() - 1), LogitsOf::last});
  }
  const std::vector<StepLogits> prefill = engine.step(batch);
  std::vector<SequenceStep> decode;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    decode.push_back({batch[i].sequence, std::span(prompts[i]).last(1), LogitsOf::last});
  }
  const std::vector<StepLogits> decoded = engine.step(decode);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    CAPTURE(lengths[i]);
    const SequenceId alone = engine.create_sequence();
    CHECK(run(engine, alone, batch[i].tokens).values == prefill[i].values);
    CHECK(run(engine, alone, decode[i].tokens).values == decoded[i].values);
    CHECK(engine.state(alone).same_as(engine.state(batch[i].sequence)));
  }
}

TEST_CASE("the thread count changes no bit", "[cpu][reference]") {
  const SyntheticModel model("mix");
  ReferenceEngine one = model.engine({.threads = 1});
  ReferenceEngine three = model.engine({.threads = 3});
  const Tokens tokens = some_tokens(one.config().vocab_size, 140);
  const std::vector<float> want = run_in_chunks(one, one.create_sequence(), tokens, 137);
  CHECK(run_in_chunks(three, three.create_sequence(), tokens, 137) == want);
}

TEST_CASE("a rollback undoes tokens as if they had never been given", "[cpu][reference]") {
  const std::string name = GENERATE("tiny", "mix");
  CAPTURE(name);
  const SyntheticModel model(name);
  ReferenceEngine engine = model.engine({.threads = 2});
  const int vocab = engine.config().vocab_size;
  const Tokens tokens = some_tokens(vocab, 400, 1);
  const Tokens others = some_tokens(vocab, 400, 2);
  struct Case {
    std::size_t kept, dropped;
  };
  // Inside a block of 4 and of 128, across their boundaries, back to nothing, and the most.
  for (const auto& [kept, dropped] :
       {Case{0, 5}, Case{2, 1}, Case{3, 2}, Case{5, 4}, Case{8, 3}, Case{126, 4}, Case{127, 1},
        Case{128, 1}, Case{128, 128}, Case{129, 127}, Case{200, 60}, Case{255, 3},
        Case{258, 128}}) {
    CAPTURE(kept, dropped);
    const auto prefix = std::span(tokens).first(kept);
    const auto rest = std::span(tokens).subspan(kept, 9);
    const SequenceId straight = engine.create_sequence();
    const SequenceId rolled = engine.create_sequence();
    if (kept > 0) {
      run(engine, straight, prefix);
      run(engine, rolled, prefix);
    }
    run(engine, rolled, std::span(others).first(dropped));
    engine.rollback(rolled, static_cast<std::int64_t>(kept));
    CHECK(engine.length(rolled) == static_cast<std::int64_t>(kept));
    CHECK(engine.state(rolled).same_as(engine.state(straight)));
    CHECK(run(engine, rolled, rest, LogitsOf::all).values ==
          run(engine, straight, rest, LogitsOf::all).values);
    CHECK(engine.state(rolled).same_as(engine.state(straight)));
  }
}

TEST_CASE("drafts rolled back token by token leave a long decode exact", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const int vocab = engine.config().vocab_size;
  const Tokens tokens = some_tokens(vocab, 300, 3);
  const Tokens drafts = some_tokens(vocab, 300, 4);
  const SequenceId straight = engine.create_sequence();
  const SequenceId drafted = engine.create_sequence();
  for (std::size_t i = 0; i < tokens.size(); i += 3) {
    const auto accepted = std::span(tokens).subspan(i, 3);
    const StepLogits want = run(engine, straight, accepted);
    run(engine, drafted, std::span(drafts).subspan(i, 2));
    engine.rollback(drafted, static_cast<std::int64_t>(i));
    const StepLogits got = run(engine, drafted, accepted);
    REQUIRE(got.values == want.values);
  }
}

TEST_CASE("a rollback refuses what it cannot restore exactly", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1, .max_rollback = 8});
  CHECK(engine.max_rollback() == 8);
  const Tokens tokens = some_tokens(engine.config().vocab_size, 40);
  const SequenceId sequence = engine.create_sequence();
  run(engine, sequence, tokens);
  CHECK_THROWS_AS(engine.rollback(sequence, 31), EngineError);
  CHECK_THROWS_AS(engine.rollback(sequence, 41), EngineError);
  CHECK_THROWS_AS(engine.rollback(sequence, -1), EngineError);
  CHECK(engine.length(sequence) == 40);
  engine.rollback(sequence, 34);
  engine.rollback(sequence, 32);
  // Eight tokens before the longest it has been, however many rollbacks it took.
  CHECK_THROWS_AS(engine.rollback(sequence, 31), EngineError);
  CHECK(engine.length(sequence) == 32);
}

TEST_CASE("a fork goes its own way", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const Tokens tokens = some_tokens(engine.config().vocab_size, 200, 5);
  const SequenceId trunk = engine.create_sequence();
  run(engine, trunk, std::span(tokens).first(130));
  const SequenceId copy = engine.fork(trunk);
  const SequenceId snapshot = engine.fork(trunk);
  CHECK(engine.state(copy).same_as(engine.state(trunk)));
  run(engine, trunk, std::span(tokens).last(7));
  const auto rest = std::span(tokens).subspan(130, 20);
  const StepLogits got = run(engine, copy, rest);
  engine.release(trunk);
  const SequenceId straight = engine.create_sequence();
  run(engine, straight, std::span(tokens).first(130));
  CHECK(engine.state(snapshot).same_as(engine.state(straight)));
  CHECK(run(engine, straight, rest).values == got.values);
  CHECK(run(engine, snapshot, rest).values == got.values);
}

TEST_CASE("a step that cannot be run changes no sequence", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1, .max_context = 10});
  CHECK(engine.max_context() == 10);
  const Tokens good = {1, 2, 3};
  const SequenceId first = engine.create_sequence();
  const SequenceId second = engine.create_sequence();
  const SequenceId gone = engine.create_sequence();
  engine.release(gone);
  run(engine, first, good);
  const Tokens beyond = {1, engine.config().vocab_size};
  const Tokens negative = {-1};
  const Tokens long_one(8, 1);
  const Tokens nothing;
  const auto refused = [&](SequenceId other, const Tokens& tokens) {
    const SequenceStep batch[] = {{first, good}, {other, tokens}};
    try {
      engine.step(batch);
    } catch (const EngineError& error) {
      return error.error().code == ErrorCode::invalid_argument;
    }
    return false;
  };
  CHECK(refused(second, beyond));
  CHECK(refused(second, negative));
  CHECK(refused(second, nothing));
  CHECK(refused(second, Tokens(11, 1)));
  CHECK(refused(gone, good));
  CHECK(refused(first, good));
  CHECK(engine.length(first) == 3);
  CHECK(engine.length(second) == 0);
  const SequenceStep overflow{first, long_one};
  CHECK_THROWS_AS(engine.step({&overflow, 1}), EngineError);
  CHECK_THROWS_AS(engine.release(gone), EngineError);
  run(engine, first, std::span(long_one).first(7));
  CHECK(engine.length(first) == 10);
}

TEST_CASE("a sequence keeps rows for its window, not for its length", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const SequenceId sequence = engine.create_sequence();
  const Tokens tokens = some_tokens(engine.config().vocab_size, 1500);
  run(engine, sequence, tokens, LogitsOf::none);
  const auto& state = engine.state(sequence);
  for (const auto& layer : state.layers) {
    // Window and rollback, and at most as many again before old rows are moved out.
    CHECK(layer.window.end() - layer.window.first() <= 2 * (128 + 128) + 256);
  }
  CHECK(state.layers[2].compressor.entries() == 1500 / 4);
  CHECK(state.layers[3].compressor.entries() == 1500 / 128);
}
