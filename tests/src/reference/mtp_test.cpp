#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "src/reference/model_rank.hpp"
#include "src/reference/numerics.hpp"
#include "tests/src/reference/oracle_dump.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

using Tokens = std::vector<TokenId>;

void run(ReferenceEngine& engine, SequenceId sequence, std::span<const TokenId> tokens) {
  const SequenceStep step{sequence, tokens, LogitsOf::none};
  engine.step({&step, 1});
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

}  // namespace

TEST_CASE("the MTP block agrees with the oracle on the oracle's hidden state", "[cpu][reference]") {
  const OracleDump dump(golden_dump("tiny"));
  const SyntheticModel model("tiny");
  const Checkpoint checkpoint = model.open();
  const ModelConfig& config = checkpoint.config();
  reference::TpGroup group(1);
  reference::ModelRank rank(checkpoint, group, 0, 2);
  reference::SequenceState state(config, rank.weights(), 128);
  const DumpTensor& hidden = dump.at("hidden");
  const std::int64_t positions = hidden.rows() - 1;  // the last one's next token is not known
  std::ranges::transform(
      std::span(hidden.values).first(static_cast<std::size_t>(positions) * hidden.width()),
      state.streams.append(positions).begin(), reference::bf16_bits);
  state.advance(positions);
  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
  rank.mtp_forward({{&state, 1}, std::span(dump.tokens()).subspan(1), logits});
  CHECK(state.mtp_length() == positions);
  // One layer of rounding: an FP8 value that falls the other way moves a row by about 1 %.
  CHECK(relative_error(logits, dump.at("mtp.0.logits").values) < 5e-2);
}

TEST_CASE("MTP logits behind the engine's own trunk are the oracle's within the model's drift",
          "[cpu][reference]") {
  const OracleDump dump(golden_dump("tiny"));
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const SequenceId sequence = engine.create_sequence();
  run(engine, sequence, dump.tokens());
  const StepLogits logits = engine.mtp_step(sequence, std::span(dump.tokens()).subspan(1));
  REQUIRE(logits.rows == 1);
  CHECK(engine.mtp_length(sequence) == 199);
  CHECK(relative_error(logits.row(0), dump.at("mtp.0.logits").values) < 0.25);
}

TEST_CASE("the MTP block does not depend on how its positions are cut", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const Tokens tokens = some_tokens(engine.config().vocab_size, 271);
  const SequenceId whole = engine.create_sequence();
  run(engine, whole, std::span(tokens).first(270));
  const StepLogits want = engine.mtp_step(whole, std::span(tokens).subspan(1), LogitsOf::all);
  REQUIRE(want.rows == 270);
  for (const std::size_t chunk : {7, 100, 133}) {
    CAPTURE(chunk);
    const SequenceId sequence = engine.create_sequence();
    std::vector<float> got;
    for (std::size_t i = 0; i < 270; i += chunk) {
      const std::size_t count = std::min(chunk, 270 - i);
      run(engine, sequence, std::span(tokens).subspan(i, count));
      // In two parts, as a caller that learns the last next token later.
      const auto next = std::span(tokens).subspan(i + 1, count);
      for (const auto part : {next.first(count - 1), next.last(1)}) {
        if (part.empty()) continue;
        const StepLogits logits = engine.mtp_step(sequence, part, LogitsOf::all);
        got.insert(got.end(), logits.values.begin(), logits.values.end());
      }
    }
    CHECK(got == want.values);
    CHECK(engine.state(sequence).same_as(engine.state(whole)));
  }
}

TEST_CASE("rollback and fork take the MTP block's state along", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const int vocab = engine.config().vocab_size;
  const Tokens tokens = some_tokens(vocab, 300, 1);
  const Tokens drafts = some_tokens(vocab, 130, 2);
  const auto next = std::span(tokens).subspan(1);
  for (const auto& [kept, dropped] :
       {std::pair<std::size_t, std::size_t>{1, 3}, {4, 2}, {130, 1}, {131, 128}, {200, 40}}) {
    CAPTURE(kept, dropped);
    const SequenceId straight = engine.create_sequence();
    run(engine, straight, std::span(tokens).first(kept));
    if (kept > 1) engine.mtp_step(straight, next.first(kept - 1));
    const SequenceId rolled = engine.fork(straight);
    CHECK(engine.state(rolled).same_as(engine.state(straight)));

    run(engine, rolled, std::span(drafts).first(dropped));
    engine.mtp_step(rolled, std::span(drafts).first(dropped));
    engine.rollback(rolled, static_cast<std::int64_t>(kept));
    // The entry of the last position was made with a draft as its next token: made again.
    CHECK(engine.mtp_length(rolled) == static_cast<std::int64_t>(kept) - 1);
    CHECK(engine.state(rolled).same_as(engine.state(straight)));

    run(engine, straight, std::span(tokens).subspan(kept, 5));
    run(engine, rolled, std::span(tokens).subspan(kept, 5));
    const auto following = next.subspan(kept - 1, 6);
    CHECK(engine.mtp_step(rolled, following, LogitsOf::all).values ==
          engine.mtp_step(straight, following, LogitsOf::all).values);
    CHECK(engine.state(rolled).same_as(engine.state(straight)));
  }
}

TEST_CASE("the MTP block refuses positions it cannot run", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1, .max_rollback = 4});
  const Tokens tokens = some_tokens(engine.config().vocab_size, 60);
  const SequenceId sequence = engine.create_sequence();
  CHECK_THROWS_AS(engine.mtp_step(sequence, std::span(tokens).first(1)), EngineError);
  run(engine, sequence, std::span(tokens).first(30));
  CHECK_THROWS_AS(engine.mtp_step(sequence, std::span(tokens).first(31)), EngineError);
  CHECK_THROWS_AS(engine.mtp_step(sequence, Tokens{}), EngineError);
  CHECK_THROWS_AS(engine.mtp_step(sequence, Tokens{engine.config().vocab_size}), EngineError);
  CHECK(engine.mtp_length(sequence) == 0);
  // Two steps later the first step's hidden states are gone.
  run(engine, sequence, std::span(tokens).subspan(30, 20));
  run(engine, sequence, std::span(tokens).subspan(50, 1));
  CHECK_THROWS_AS(engine.mtp_step(sequence, std::span(tokens).subspan(1, 1)), EngineError);
}
