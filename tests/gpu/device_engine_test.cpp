#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/gpu/device_model.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using test::device_engine;
using test::run;
using test::some_tokens;

namespace {

struct Agreement {
  double median_error = 0;
  double argmax = 0;  // share of rows
};

Agreement agreement(const StepLogits& got, const StepLogits& wanted) {
  std::vector<double> errors;
  int same = 0;
  for (int r = 0; r < wanted.rows; ++r) {
    const auto a = got.row(r), b = wanted.row(r);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      difference += std::pow(a[i] - b[i], 2.0);
      norm += std::pow(b[i], 2.0);
    }
    errors.push_back(std::sqrt(difference / norm));
    same += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
  }
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], static_cast<double>(same) / wanted.rows};
}

}  // namespace

TEST_CASE("a prompt and decode steps on the GPU give the reference's logits", "[gpu][model]") {
  for (const char* name : {"tiny", "tiny-tp"}) {
    const test::SyntheticModel model(name);
    const auto engine = device_engine(model.open(), {.max_context = 8192, .max_sequences = 4});
    if (!engine) return;
    auto reference = model.engine({.max_context = 8192});
    const auto tokens = some_tokens(engine->config().vocab_size, 700);
    const auto ours = engine->create_sequence();
    const auto theirs = reference.create_sequence();
    // Longer than a pass; then one at a time over several block boundaries.
    const auto prompt = std::span(tokens).first(600);
    const Agreement prefill = agreement(run(*engine, ours, prompt), run(reference, theirs, prompt));
    StepLogits got{.rows = 0, .values = {}}, wanted{.rows = 0, .values = {}};
    for (std::size_t i = 600; i < tokens.size(); ++i) {
      const auto token = std::span(tokens).subspan(i, 1);
      const auto a = run(*engine, ours, token), b = run(reference, theirs, token);
      got.values.insert(got.values.end(), a.values.begin(), a.values.end());
      wanted.values.insert(wanted.values.end(), b.values.begin(), b.values.end());
      ++got.rows, ++wanted.rows;
    }
    const Agreement decode = agreement(got, wanted);
    fmt::print("{}: prefill median error {:.4f}, argmax {:.3f}; decode {:.4f}, {:.3f}\n", name,
               prefill.median_error, prefill.argmax, decode.median_error, decode.argmax);
    CHECK(prefill.median_error < 0.10);
    CHECK(prefill.argmax > 0.85);
    CHECK(decode.median_error < 0.10);
    CHECK(decode.argmax > 0.85);
    CHECK(engine->length(ours) == 700);
    CHECK(engine->stats().graph_steps > 90);
  }
}

TEST_CASE("graphs give the bits that plain launches give", "[gpu][model]") {
  const test::SyntheticModel model("tiny");
  const auto tokens = some_tokens(512, 64);
  std::vector<std::vector<float>> logits[2];
  for (const bool graphs : {false, true}) {
    const auto engine =
        device_engine(model.open(), {.max_context = 4096, .max_sequences = 2, .graphs = graphs});
    if (!engine) return;
    const auto sequence = engine->create_sequence();
    run(*engine, sequence, std::span(tokens).first(20));
    for (std::size_t i = 20; i < tokens.size(); ++i)
      logits[graphs ? 1 : 0].push_back(
          run(*engine, sequence, std::span(tokens).subspan(i, 1)).values);
    CHECK((engine->stats().graph_steps > 40) == graphs);
  }
  CHECK(logits[0] == logits[1]);
}

TEST_CASE("sequences of different lengths share steps on the GPU", "[gpu][model]") {
  const test::SyntheticModel model("tiny");
  for (const int count : {3, 17, 33}) {
    const auto engine =
        device_engine(model.open(), {.max_context = 2048, .max_sequences = count + 1});
    if (!engine) return;
    auto reference = model.engine({.max_context = 2048});
    std::vector<SequenceId> ours, theirs;
    std::vector<std::vector<TokenId>> tokens;
    for (int i = 0; i < count; ++i) {
      ours.push_back(engine->create_sequence());
      theirs.push_back(reference.create_sequence());
      tokens.push_back(some_tokens(512, 260, static_cast<std::uint64_t>(i) + 1));
    }
    // The first step: prompts of all lengths mod 4 and around 128; then two steps of one token.
    StepLogits got{.rows = 0, .values = {}}, wanted{.rows = 0, .values = {}};
    for (int round = 0; round < 3; ++round) {
      std::vector<SequenceStep> a, b;
      for (int i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::size_t length = 1 + (at * 37) % 256;
        const auto part = round == 0
                              ? std::span<const TokenId>(tokens[at]).first(length)
                              : std::span<const TokenId>(tokens[at])
                                    .subspan(length + static_cast<std::size_t>(round) - 1, 1);
        a.push_back({.sequence = ours[at], .tokens = part, .logits = LogitsOf::last});
        b.push_back({.sequence = theirs[at], .tokens = part, .logits = LogitsOf::last});
      }
      const auto x = engine->step(a);
      const auto y = reference.step(b);
      for (std::size_t i = 0; i < x.size(); ++i) {
        got.values.insert(got.values.end(), x[i].values.begin(), x[i].values.end());
        wanted.values.insert(wanted.values.end(), y[i].values.begin(), y[i].values.end());
        ++got.rows, ++wanted.rows;
      }
    }
    const Agreement a = agreement(got, wanted);
    fmt::print("{} sequences: median error {:.4f}, argmax {:.3f}\n", count, a.median_error,
               a.argmax);
    CHECK(a.median_error < 0.10);
    CHECK(a.argmax > (count < 10 ? 0.6 : 0.8));  // of nine rows one is a tenth
  }
}

TEST_CASE("copies, going back and reuse of a place leave a sequence as a fresh one",
          "[gpu][model]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 2048, .max_sequences = 4});
  if (!engine) return;
  const auto tokens = some_tokens(512, 600);
  const auto all = std::span(tokens);
  const auto first = engine->create_sequence();
  run(*engine, first, all.first(515), LogitsOf::none);
  const auto kept = engine->fork(first);
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 515; i < 530; ++i)
    expected.push_back(run(*engine, first, all.subspan(i, 1)).values);

  SECTION("a copy goes on as its original did") {
    const auto copy = engine->fork(kept);
    for (std::size_t i = 515; i < 530; ++i)
      CHECK(run(*engine, copy, all.subspan(i, 1)).values == expected[i - 515]);
    CHECK(engine->length(kept) == 515);
  }
  SECTION("after going back the same tokens give the same bits") {
    engine->rollback(first, 530 - engine->max_rollback());
    for (std::size_t i = 530 - static_cast<std::size_t>(engine->max_rollback()); i < 530; ++i)
      CHECK(run(*engine, first, all.subspan(i, 1)).values == expected[i - 515]);
    CHECK_THROWS_AS(engine->rollback(first, 500), EngineError);
  }
  SECTION("other tokens in a copy leave the original alone") {
    const auto copy = engine->fork(kept);
    run(*engine, copy, some_tokens(512, 300, 9), LogitsOf::none);
    for (std::size_t i = 515; i < 530; ++i)
      CHECK(run(*engine, kept, all.subspan(i, 1)).values == expected[i - 515]);
  }
  SECTION("a place that is used again holds nothing of the one before") {
    engine->release(first);
    const auto again = engine->create_sequence();
    run(*engine, again, all.first(515), LogitsOf::none);
    for (std::size_t i = 515; i < 530; ++i)
      CHECK(run(*engine, again, all.subspan(i, 1)).values == expected[i - 515]);
  }
}

TEST_CASE("a step that cannot run is refused before anything changes", "[gpu][model]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 1024, .max_sequences = 2});
  if (!engine) return;
  const auto tokens = some_tokens(512, 1100);
  const auto sequence = engine->create_sequence();
  CHECK_THROWS_AS(run(*engine, sequence, tokens), EngineError);
  const std::vector<TokenId> bad{1, 512};
  CHECK_THROWS_AS(run(*engine, sequence, bad), EngineError);
  CHECK_THROWS_AS(run(*engine, SequenceId{77}, std::span(tokens).first(1)), EngineError);
  CHECK(engine->length(sequence) == 0);
  engine->create_sequence();
  CHECK_THROWS_AS(engine->create_sequence(), EngineError);
  CHECK_THROWS_AS(engine->fork(sequence), EngineError);
}
