// Contexts around every edge, and what the engine keeps of sequences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "src/executor/device_state.hpp"
#include "tests/gpu/device_model.hpp"

using namespace ingot;
using test::device_engine;
using test::median;
using test::relative_error;
using test::run;
using test::some_tokens;

namespace {

std::string saved(const Engine& engine, SequenceId sequence) {
  return value_or_throw(engine.snapshot_bytes(sequence));
}

}  // namespace

TEST_CASE("rows agree with the reference at every residue and around every edge, however cut",
          "[gpu][model][edges]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 2048, .max_sequences = 4});
  if (!engine) return;
  auto reference = model.engine({.max_context = 2048});
  constexpr std::size_t kTokens = 1100;
  const auto tokens = some_tokens(512, kTokens);
  const auto all = std::span(tokens);
  const StepLogits wanted = run(reference, reference.create_sequence(), all);
  // Cut into equal parts; and whole up to just before an edge, then one by one over it.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> ways;
  for (const std::size_t part : {3, 5, 127, 128, 129, 255, 256, 257, 1100})
    ways.emplace_back(fmt::format("parts of {}", part), std::vector<std::size_t>{part});
  for (const std::size_t edge : {4, 128, 256, 384, 512, 1024})
    ways.emplace_back(fmt::format("single tokens around {}", edge),
                      std::vector<std::size_t>{edge - 3, 1, 1, 1, 1, 1, 1, 1, kTokens});
  for (const auto& [name, parts] : ways) {
    CAPTURE(name);
    const auto sequence = engine->create_sequence();
    std::array<std::vector<double>, 4> by_residue;
    std::vector<double> near_edges;
    std::size_t at = 0;
    for (std::size_t p = 0; at < kTokens; ++p) {
      const std::size_t count = std::min(parts[std::min(p, parts.size() - 1)], kTokens - at);
      const StepLogits got = run(*engine, sequence, all.subspan(at, count));
      REQUIRE(got.rows == static_cast<int>(count));
      for (std::size_t i = 0; i < count; ++i) {
        const double error =
            relative_error(got.row(static_cast<int>(i)), wanted.row(static_cast<int>(at + i)));
        REQUIRE(std::isfinite(error));
        by_residue[(at + i) % 4].push_back(error);
        if ((at + i + 3) % 128 < 6) near_edges.push_back(error);
      }
      at += count;
    }
    for (const auto& errors : by_residue)
      CHECK(median(errors) < 0.10);
    CHECK(median(near_edges) < 0.12);
    engine->release(sequence);
  }
}

TEST_CASE("a stream alone and among 31 others says the same within rounding",
          "[gpu][model][edges]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 2048, .max_sequences = 40});
  if (!engine) return;
  const auto tokens = some_tokens(512, 400);
  const auto all = std::span(tokens);
  const auto alone = engine->create_sequence();
  run(*engine, alone, all.first(300), LogitsOf::none);
  const auto among = engine->fork(alone);
  std::vector<SequenceId> others;
  std::vector<std::vector<TokenId>> theirs;
  for (std::size_t i = 0; i < 31; ++i) {
    others.push_back(engine->create_sequence());
    theirs.push_back(some_tokens(512, 500, i + 2));
    run(*engine, others[i], std::span(theirs[i]).first(1 + i * 9), LogitsOf::none);
  }
  std::vector<double> errors;
  int same = 0;
  for (std::size_t t = 300; t < 400; ++t) {
    const auto wanted = run(*engine, alone, all.subspan(t, 1));
    std::vector<SequenceStep> batch;
    for (std::size_t i = 0; i < 31; ++i)
      batch.push_back(
          {others[i], std::span(theirs[i]).subspan(1 + i * 9 + t - 300, 1), LogitsOf::last});
    batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(t % 32),
                 SequenceStep{among, all.subspan(t, 1), LogitsOf::last});
    const auto got = engine->step(batch);
    const auto row = got[t % 32].row(0);
    errors.push_back(relative_error(row, wanted.row(0)));
    same += std::ranges::max_element(row) - row.begin() ==
                    std::ranges::max_element(wanted.values) - wanted.values.begin()
                ? 1
                : 0;
  }
  fmt::print("alone and among 31: median error {:.4f}, argmax {} of 100\n", median(errors), same);
  CHECK(median(errors) < 0.10);
  CHECK(same >= 80);
}

TEST_CASE("tokens chosen on the GPU are the sampler's, in every batch", "[gpu][model][sampling]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 2048, .max_sequences = 70});
  if (!engine) return;
  const auto tokens = some_tokens(512, 60);
  Sampler sampler;
  for (const int pairs : {1, 3, 16, 32}) {
    const auto first = engine->create_sequence();
    run(*engine, first, std::span(tokens).first(30), LogitsOf::none);
    std::vector<SequenceId> sequences{first};
    while (static_cast<int>(sequences.size()) < 2 * pairs)
      sequences.push_back(engine->fork(first));
    TokenHistory history{.prompt = {tokens.begin(), tokens.begin() + 30}, .generated = {}};
    int taken = 0, returned = 0;
    for (std::size_t t = 30; t < 60; ++t) {
      std::vector<SamplingParams> params(static_cast<std::size_t>(pairs));
      std::vector<SequenceStep> batch;
      for (std::size_t i = 0; i < params.size(); ++i) {
        SamplingParams& p = params[i];
        p.seed = t * 100 + i;
        p.temperature = i % 5 == 0 ? 0 : 0.3 + 0.2 * static_cast<double>(i % 8);
        if (i % 3 == 1) p.top_p = 0.9;
        if (i % 4 == 2) p.top_k = 20;
        if (i % 7 == 3) p.min_p = 0.05;
        if (i % 2 == 0) p.top_logprobs = static_cast<int>(i % 21);
        if (i % 11 == 5) p.logit_bias.assign(600, {7, 0.01});  // its logits come back
        if (i % 7 == 4) p.logit_bias = {{9, 3.5}, {400, -2.0}, {9, 0.25}};
        if (i % 5 == 2) p.frequency_penalty = 0.8;
        if (i % 6 == 3) p.repetition_penalty = 1.3;
        const auto token = std::span(tokens).subspan(t, 1);
        batch.push_back({sequences[2 * i], token, LogitsOf::last});
        batch.push_back({sequences[2 * i + 1], token, LogitsOf::last,
                         SampleRequest{&p, &history, static_cast<std::int64_t>(t) + 1}});
      }
      ++history.generated[tokens[t]];
      const auto results = engine->step(batch);
      for (std::size_t i = 0; i < params.size(); ++i) {
        CAPTURE(pairs, t, i);
        const StepLogits& got = results[2 * i + 1];
        if (params[i].logit_bias.size() > 512) {
          CHECK_FALSE(got.sampled);
          CHECK(got.rows == 1);
          ++returned;
          continue;
        }
        REQUIRE(got.sampled);
        REQUIRE(*got.sampled);
        const auto wanted = value_or_throw(sampler.sample(results[2 * i].row(0), params[i], history,
                                                          static_cast<std::int64_t>(t) + 1));
        CHECK((*got.sampled)->id == wanted.id);
        CHECK((*got.sampled)->logprob.has_value() == wanted.logprob.has_value());
        CHECK((*got.sampled)->top.size() == wanted.top.size());
        ++taken;
      }
    }
    CHECK(taken > 0);
    CHECK((returned > 0) == (pairs > 5));
    for (const auto sequence : sequences)
      engine->release(sequence);
  }
  CHECK(engine->stats().graph_steps > 80);
}

TEST_CASE("a saved sequence is to the byte a cold run's and goes on as it did",
          "[gpu][model][snapshot]") {
  const test::SyntheticModel model("tiny");
  const auto tokens = some_tokens(512, 800);
  const auto all = std::span(tokens);
  for (const std::size_t length : {1, 4, 127, 128, 255, 256, 257, 700}) {
    CAPTURE(length);
    const auto engine = device_engine(model.open(), {.max_context = 1024, .max_sequences = 4});
    if (!engine) return;
    const auto sequence = engine->create_sequence();
    run(*engine, sequence, all.first(length), LogitsOf::none);
    const std::string bytes = saved(*engine, sequence);
    std::vector<std::vector<float>> expected;
    for (std::size_t i = length; i < length + 12; ++i)
      expected.push_back(run(*engine, sequence, all.subspan(i, 1)).values);
    const auto other = device_engine(model.open(), {.max_context = 1024, .max_sequences = 4});
    run(*other, other->create_sequence(), some_tokens(512, 300, 7), LogitsOf::none);
    const auto restored = value_or_throw(other->restore(bytes));
    CHECK(saved(*other, restored) == bytes);
    for (std::size_t i = length; i < length + 12; ++i)
      CHECK(run(*other, restored, all.subspan(i, 1)).values == expected[i - length]);
    other->rollback(restored, static_cast<std::int64_t>(length) + 12 - other->max_rollback());
    for (std::size_t i = length + 4; i < length + 12; ++i)
      CHECK(run(*other, restored, all.subspan(i, 1)).values == expected[i - length]);
    const auto cold = other->create_sequence();
    run(*other, cold, all.first(length), LogitsOf::none);
    CHECK(saved(*other, cold) == bytes);
  }
}

TEST_CASE("a short run of the whole engine stays in bounds", "[gpu][model][sanitize]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 512, .max_sequences = 4});
  if (!engine) return;
  const auto tokens = some_tokens(512, 150);
  const auto all = std::span(tokens);
  const auto sequence = engine->create_sequence();
  run(*engine, sequence, all.first(130), LogitsOf::last);
  SamplingParams params;
  params.top_p = 0.9;
  params.top_logprobs = 2;
  const TokenHistory history;
  for (std::size_t i = 130; i < 134; ++i) {
    const SequenceStep step{sequence, all.subspan(i, 1), LogitsOf::last,
                            SampleRequest{&params, &history, static_cast<std::int64_t>(i) + 1}};
    const auto results = engine->step({&step, 1});
    REQUIRE(results[0].sampled);
    CHECK(results[0].sampled->has_value());
  }
  const auto copy = engine->fork(sequence);
  run(*engine, copy, all.subspan(134, 2), LogitsOf::all);
  const auto restored = value_or_throw(engine->restore(saved(*engine, copy)));
  run(*engine, restored, all.subspan(136, 1));
}

TEST_CASE("NaN stays in its own sequence and is counted", "[gpu][model][faults]") {
  const test::SyntheticModel model("tiny");
  const std::size_t row_bytes = static_cast<std::size_t>(model.open().config().hidden_size) * 2;
  model.damage("embed.weight", 7 * row_bytes, "\xff\x7f");  // one bf16 NaN in token 7
  const auto sound = some_tokens(7, 500);
  auto sick = sound;
  sick[300] = 7;
  std::vector<std::vector<float>> beside[2];
  for (const bool is_sick : {false, true}) {
    const auto engine = device_engine(model.open(), {.max_context = 1024, .max_sequences = 4});
    if (!engine) return;
    const auto one = engine->create_sequence(), two = engine->create_sequence();
    const auto& first = is_sick ? sick : sound;
    run(*engine, one, std::span(first).first(250), LogitsOf::none);
    run(*engine, two, std::span(sound).first(250), LogitsOf::none);
    for (std::size_t t = 250; t < 500; ++t) {
      const SequenceStep batch[] = {{one, std::span(first).subspan(t, 1), LogitsOf::last},
                                    {two, std::span(sound).subspan(t, 1), LogitsOf::last}};
      auto results = engine->step(batch);
      beside[is_sick ? 1 : 0].push_back(std::move(results[1].values));
      const bool has_nan =
          std::ranges::any_of(results[0].values, [](float v) { return std::isnan(v); });
      CHECK(has_nan == (is_sick && t >= 300));
    }
    const NumericFaults faults = engine->numeric_faults();
    fmt::print("NaN: {} rows of logits, {} scores\n", faults.nan_rows, faults.nan_scores);
    CHECK((faults.nan_rows == 200) == is_sick);
    CHECK((faults.nan_scores > 0) == is_sick);
  }
  CHECK(beside[0] == beside[1]);
}

TEST_CASE("a sequence whose pages lie beyond 2 GiB of a pool says what one at its start says",
          "[gpu][model][long]") {
  const test::SyntheticModel model("tiny");
  constexpr std::int64_t kMillion = std::int64_t{1} << 20;
  const auto engine = device_engine(
      model.open(),
      {.max_context = kMillion, .max_sequences = 18, .context_tokens = 17 * kMillion});
  if (!engine) return;
  const auto tokens = some_tokens(512, 3000);
  const auto all = std::span(tokens);
  const auto go = [&] {
    const auto sequence = engine->create_sequence();
    std::vector<std::vector<float>> logits;
    run(*engine, sequence, all.first(2900), LogitsOf::none);
    for (std::size_t i = 2900; i < 2920; ++i)
      logits.push_back(run(*engine, sequence, all.subspan(i, 1)).values);
    return logits;
  };
  const auto low = go();
  for (int i = 0; i < 15; ++i)
    engine->create_filled(kMillion - 1);
  // Pages are taken from the first on: the next one lies behind 15 million tokens.
  const std::int64_t bytes_before = 15 * kMillion / kCsaPageTokens * 64 * 592;
  REQUIRE(bytes_before > std::int64_t{1} << 31);
  CHECK(go() == low);
}

TEST_CASE("a prompt of a million tokens is read and answered", "[gpu][model][long]") {
  const test::SyntheticModel model("tiny");
  constexpr std::int64_t kTokens = 1'000'000;
  const auto engine =
      device_engine(model.open(), {.max_context = std::int64_t{1} << 20, .max_sequences = 3});
  if (!engine) return;
  const auto tokens = some_tokens(512, kTokens + 40);
  const auto all = std::span(tokens);
  const auto sequence = engine->create_sequence();
  constexpr std::size_t kPart = 100'000;
  for (std::size_t at = 0; at < kTokens; at += kPart)
    run(*engine, sequence, all.subspan(at, kPart), LogitsOf::none);
  CHECK(engine->length(sequence) == kTokens);
  const std::string bytes = saved(*engine, sequence);
  const auto restored = value_or_throw(engine->restore(bytes));
  const auto copy = engine->fork(sequence);
  for (std::size_t i = kTokens; i < kTokens + 40; ++i) {
    const auto wanted = run(*engine, sequence, all.subspan(i, 1)).values;
    CHECK(std::ranges::all_of(wanted, [](float v) { return std::isfinite(v); }));
    CHECK(run(*engine, restored, all.subspan(i, 1)).values == wanted);
    CHECK(run(*engine, copy, all.subspan(i, 1)).values == wanted);
  }
  CHECK(engine->numeric_faults().nan_scores == 0);
  fmt::print("a million tokens: {:.1f} MB saved\n", static_cast<double>(bytes.size()) / 1e6);
}
