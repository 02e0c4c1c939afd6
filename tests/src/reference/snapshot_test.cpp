#include <catch2/catch.hpp>
#include <random>

#include "src/reference/sequence_state.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

using Tokens = std::vector<TokenId>;

Tokens some_tokens(int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back((i * 37 + 11) % 250);
  return tokens;
}

StepLogits run(ReferenceEngine& engine, SequenceId sequence, std::span<const TokenId> tokens) {
  const SequenceStep step{sequence, tokens, LogitsOf::last};
  return std::move(engine.step({&step, 1})[0]);
}

}  // namespace

TEST_CASE("a sequence that went through bytes goes on as if it never had", "[cpu][reference]") {
  const int tp_size = GENERATE(1, 2);
  const std::string name = tp_size == 1 ? "tiny" : "tiny-tp";
  const int length = GENERATE(1, 127, 300);
  CAPTURE(name, tp_size, length);
  const SyntheticModel model(name);
  ReferenceEngine engine = model.engine({.threads = 2, .tp_size = tp_size, .max_rollback = 16});
  const SequenceId sequence = engine.create_sequence();
  const Tokens tokens = some_tokens(length);
  (void)run(engine, sequence, tokens);
  const std::string bytes = value_or_throw(engine.snapshot_bytes(sequence));

  // In another engine, as after a new start.
  ReferenceEngine other = model.engine({.threads = 1, .tp_size = tp_size, .max_rollback = 16});
  const SequenceId restored = value_or_throw(other.restore(bytes));
  CHECK(other.length(restored) == length);
  for (int rank = 0; rank < tp_size; ++rank)
    CHECK(other.state(restored, rank).same_as(engine.state(sequence, rank)));
  if (length > 16) {
    engine.rollback(sequence, length - 16);
    other.rollback(restored, length - 16);
  }
  const Tokens more = some_tokens(140);
  CHECK(run(other, restored, more).values == run(engine, sequence, more).values);
}

TEST_CASE("an empty sequence can be kept too", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1});
  const SequenceId empty = engine.create_sequence();
  const SequenceId restored =
      value_or_throw(engine.restore(value_or_throw(engine.snapshot_bytes(empty))));
  const Tokens tokens = some_tokens(5);
  CHECK(run(engine, restored, tokens).values == run(engine, empty, tokens).values);
}

TEST_CASE("a state of another shape is refused", "[cpu][reference]") {
  const SyntheticModel model("tiny-tp");
  ReferenceEngine engine = model.engine({.threads = 1});
  const SequenceId sequence = engine.create_sequence();
  (void)run(engine, sequence, some_tokens(40));
  const std::string bytes = value_or_throw(engine.snapshot_bytes(sequence));

  ReferenceEngine two = model.engine({.threads = 1, .tp_size = 2});
  const auto other_tp = two.restore(bytes);
  REQUIRE(!other_tp);
  CHECK(other_tp.error().code == ErrorCode::unsupported);
  ReferenceEngine small = model.engine({.threads = 1, .max_context = 39});
  const auto too_long = small.restore(bytes);
  REQUIRE(!too_long);
  CHECK(too_long.error().message.find("39") != std::string::npos);
  CHECK(!engine.restore(""));
  CHECK(!engine.restore(bytes + "x"));
  const SyntheticModel wider("mix");
  ReferenceEngine other_model = wider.engine({.threads = 1});
  CHECK(!other_model.restore(bytes));
}

TEST_CASE("a damaged state is refused, or runs", "[cpu][reference]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 1});
  const SequenceId sequence = engine.create_sequence();
  (void)run(engine, sequence, some_tokens(20));
  const std::string bytes = value_or_throw(engine.snapshot_bytes(sequence));
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = bytes;
    if (i % 2 == 0) damaged.resize(random() % damaged.size());
    // Near the numbers that say what is where, too.
    const std::size_t at = i % 4 < 2 ? random() % std::min<std::size_t>(400, damaged.size() + 1)
                                     : random() % (damaged.size() + 1);
    if (at < damaged.size()) damaged[at] = static_cast<char>(random());
    const auto restored = engine.restore(damaged);
    if (!restored) {
      ++refused;
      CHECK(!restored.error().message.empty());
      continue;
    }
    (void)run(engine, *restored, some_tokens(3));
    engine.release(*restored);
  }
  CHECK(refused > 200);
}
