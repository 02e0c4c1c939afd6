// Passes of more rows than the rings of their sequences have room for.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/gpu/device_model.hpp"

using namespace ingot;
using test::device_engine;
using test::median;
using test::relative_error;
using test::run;
using test::some_tokens;

TEST_CASE("what follows wide passes is what the reference says, however they were cut",
          "[gpu][model][wide]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), {.max_context = 8192, .max_sequences = 4});
  if (!engine) return;
  REQUIRE(engine->stats().step_rows == 4096);
  auto reference = model.engine({.max_context = 8192});
  constexpr std::size_t kTokens = 4500, kAfter = 140;
  const auto tokens = some_tokens(512, kTokens);
  const auto all = std::span(tokens);
  const StepLogits wanted = run(reference, reference.create_sequence(), all);
  struct Way {
    std::vector<std::size_t> parts;  // the last one is repeated
    std::size_t length;
  };
  const std::vector<Way> ways{
      {{257}, 257},   {{300}, 1200},         {{384}, 768},
      {{512}, 1024},  {{1000}, 3000},        {{2048}, 4096},
      {{4096}, 4096}, {{1, 383, 500}, 1384}, {{255, 257, 3, 1021, 700}, 2936},
      {{3333}, 3333}};
  std::vector<double> ends;  // last rows of the parts of all ways
  for (const auto& [parts, length] : ways) {
    CAPTURE(parts, length);
    const auto sequence = engine->create_sequence();
    const auto steps = engine->stats().steps;
    std::size_t at = 0;
    for (std::size_t p = 0; at < length; ++p) {
      const std::size_t count = std::min(parts[std::min(p, parts.size() - 1)], length - at);
      const StepLogits got = run(*engine, sequence, all.subspan(at, count), LogitsOf::last);
      at += count;
      ends.push_back(relative_error(got.row(0), wanted.row(static_cast<int>(at) - 1)));
      REQUIRE(std::isfinite(ends.back()));
    }
    const auto passes = engine->stats().steps - steps;
    // A token taken back out of the pass, and again.
    const auto back = std::min<std::size_t>(8, length - 1);
    engine->rollback(sequence, static_cast<std::int64_t>(length - back));
    std::vector<double> after;
    std::vector<std::vector<float>> decoded;
    for (std::size_t i = length - back; i < length; ++i) {
      const auto got = run(*engine, sequence, all.subspan(i, 1));
      after.push_back(relative_error(got.row(0), wanted.row(static_cast<int>(i))));
      decoded.push_back(got.values);
    }
    engine->rollback(sequence, static_cast<std::int64_t>(length - back));
    for (std::size_t i = length - back; i < length; ++i)
      CHECK(run(*engine, sequence, all.subspan(i, 1)).values == decoded[i + back - length]);
    const StepLogits rows = run(*engine, sequence, all.subspan(length, kAfter));
    for (std::size_t i = 0; i < kAfter; ++i) {
      after.push_back(
          relative_error(rows.row(static_cast<int>(i)), wanted.row(static_cast<int>(length + i))));
      REQUIRE(std::isfinite(after.back()));
    }
    fmt::print("{} tokens in {} passes: median error {:.4f} behind\n", length, passes,
               median(after));
    CHECK(median(after) < 0.10);
    engine->release(sequence);
  }
  fmt::print("at the ends of {} parts: median error {:.4f}\n", ends.size(), median(ends));
  CHECK(median(ends) < 0.10);
}

TEST_CASE("decodes that share a wide pass say what they say in narrow ones", "[gpu][model][wide]") {
  const test::SyntheticModel model("tiny");
  const auto wide = device_engine(model.open(), {.max_context = 4096, .max_sequences = 24});
  if (!wide) return;
  const auto narrow =
      device_engine(model.open(), {.max_context = 4096, .max_sequences = 24, .step_rows = 256});
  constexpr std::size_t kOthers = 20;
  const auto tokens = some_tokens(512, 4000);
  const auto all = std::span(tokens);
  std::vector<double> decodes, ends;
  struct Side {
    Engine* engine;
    std::vector<SequenceId> others;
    SequenceId prompt{};
  };
  Side sides[2] = {{wide.get(), {}}, {narrow.get(), {}}};
  for (Side& side : sides) {
    for (std::size_t i = 0; i < kOthers; ++i) {
      side.others.push_back(side.engine->create_sequence());
      run(*side.engine, side.others[i], all.subspan(7 * i, 1 + 37 * i), LogitsOf::none);
    }
    side.prompt = side.engine->create_sequence();
  }
  std::size_t fed = 0;
  for (const std::size_t chunk : {1500, 300, 1000, 1, 600}) {
    std::vector<StepLogits> results[2];
    for (std::size_t s = 0; s < 2; ++s) {
      std::vector<SequenceStep> batch;
      for (std::size_t i = 0; i < kOthers; ++i)
        batch.push_back({sides[s].others[i], all.subspan(i, 1), LogitsOf::last});
      batch.insert(batch.begin() + 5,
                   SequenceStep{sides[s].prompt, all.subspan(fed, chunk), LogitsOf::last});
      results[s] = sides[s].engine->step(batch);
    }
    fed += chunk;
    for (std::size_t i = 0; i < results[0].size(); ++i)
      (i == 5 ? ends : decodes)
          .push_back(relative_error(results[0][i].row(0), results[1][i].row(0)));
  }
  fmt::print("beside a wide chunk: median error {:.4f} of decodes, {:.4f} of the chunk's ends\n",
             median(decodes), median(ends));
  CHECK(median(decodes) < 0.10);
  CHECK(median(ends) < 0.10);
}

TEST_CASE("wide passes at the end of a long context select the keys that narrow ones select",
          "[gpu][model][wide]") {
  const test::SyntheticModel model("tiny");
  constexpr std::int64_t kMillion = std::int64_t{1} << 20;
  const auto tokens = some_tokens(512, 5000);
  const auto all = std::span(tokens);
  // 262,144 keys a row: the rows of a pass are scored in slices.
  for (const std::int64_t filled : {std::int64_t{100'000}, kMillion - 5000}) {
    std::vector<StepLogits> results[2];
    for (const int side : {0, 1}) {
      const auto engine = device_engine(
          model.open(),
          {.max_context = kMillion, .max_sequences = 2, .step_rows = side == 0 ? 4096 : 256});
      if (!engine) return;
      engine->fill_context();
      const auto sequence = engine->create_filled(filled);
      results[side].push_back(run(*engine, sequence, all.first(4096), LogitsOf::last));
      results[side].push_back(run(*engine, sequence, all.subspan(4096, 200)));
      if (side == 0) CHECK(engine->stats().steps == 2);
      CHECK(engine->numeric_faults().nan_scores == 0);
    }
    std::vector<double> errors;
    for (std::size_t i = 0; i < 2; ++i)
      for (int row = 0; row < results[0][i].rows; ++row)
        errors.push_back(relative_error(results[0][i].row(row), results[1][i].row(row)));
    fmt::print("behind {} tokens: median error {:.4f}\n", filled, median(errors));
    CHECK(median(errors) < 0.10);
  }
}
