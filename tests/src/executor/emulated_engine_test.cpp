#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <fstream>

#include "src/weights/open_checkpoint.hpp"
#include "src/weights/synth.hpp"
#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::emulated_engine;

namespace {

StepLogits run(Engine& engine, SequenceId sequence, std::span<const TokenId> tokens) {
  const SequenceStep step{.sequence = sequence, .tokens = tokens, .logits = LogitsOf::all};
  return std::move(engine.step({&step, 1})[0]);
}

/// Launches that the driver of failing_driver() still carries out.
std::atomic<int> g_launches_left = 0;
decltype(cu::DriverApi::cuLaunchKernelEx) g_launch = nullptr;

std::shared_ptr<const cu::DriverApi> failing_driver(const cu::DriverApi& whole) {
  g_launch = whole.cuLaunchKernelEx;
  auto driver = std::make_shared<cu::DriverApi>(whole);
  driver->cuLaunchKernelEx = [](const cu::CUlaunchConfig* config, cu::CUfunction function,
                                void** arguments, void** extra) {
    if (g_launches_left-- <= 0) return cu::CUDA_ERROR_DEINITIALIZED;
    return g_launch(config, function, arguments, extra);
  };
  return driver;
}

/// A driver that takes launches and carries none out.
std::shared_ptr<const cu::DriverApi> silent_driver(const cu::DriverApi& whole) {
  auto driver = std::make_shared<cu::DriverApi>(whole);
  driver->cuLaunchKernelEx = [](const cu::CUlaunchConfig*, cu::CUfunction, void**, void**) {
    return cu::CUDA_SUCCESS;
  };
  return driver;
}

double relative_error(std::span<const float> got, std::span<const float> wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(got[i] - wanted[i], 2.0);
    norm += std::pow(wanted[i], 2.0);
  }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("the device engine gives the reference's logits, its kernels run thread by thread",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto engine = emulated_engine({card->driver()}, model.open());
  auto reference = model.engine({.threads = 2, .max_context = 2048});
  const auto tokens = test::some_tokens(engine->config().vocab_size, 8);
  const auto all = std::span(tokens);
  const auto ours = engine->create_sequence();
  const auto theirs = reference.create_sequence();
  std::vector<double> errors;
  std::vector<std::vector<float>> decoded;
  const auto compare = [&](std::size_t first, std::size_t count) {
    const auto got = run(*engine, ours, all.subspan(first, count));
    const auto wanted = run(reference, theirs, all.subspan(first, count));
    for (int r = 0; r < wanted.rows; ++r)
      errors.push_back(relative_error(got.row(r), wanted.row(r)));
    decoded.push_back(got.values);
  };
  compare(0, 5);  // the first block of four and a token more
  const auto kept = engine->fork(ours);
  compare(5, 1);
  compare(6, 1);
  std::ranges::sort(errors);
  // Random weights amplify a rounding that flips: two right implementations differ by some percent.
  CHECK(errors[errors.size() / 2] < 0.10);
  CHECK(errors.back() < 0.5);

  // A copy goes on as its original did, and going back gives the same bits again.
  CHECK(run(*engine, kept, all.subspan(5, 1)).values == decoded[1]);
  engine->rollback(ours, 6);
  CHECK(run(*engine, ours, all.subspan(6, 1)).values == decoded[2]);
}

// Takes minutes: half a thousand rows on the emulator.
TEST_CASE("wide passes leave what the reference knows, their kernels run thread by thread",
          "[.slow][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto engine = emulated_engine({card->driver()}, model.open());
  auto reference = model.engine({.threads = 2, .max_context = 2048});
  const auto tokens = test::some_tokens(engine->config().vocab_size, 605);
  const auto all = std::span(tokens);
  const auto ours = engine->create_sequence();
  const auto theirs = reference.create_sequence();
  std::vector<double> errors;
  // Both are longer than a window, the second wraps the ring.
  for (const std::size_t first : {std::size_t{0}, std::size_t{302}}) {
    const SequenceStep chunk{
        .sequence = ours, .tokens = all.subspan(first, 300), .logits = LogitsOf::last};
    const auto got = engine->step({&chunk, 1});
    const auto wanted = run(reference, theirs, all.subspan(first, 300));
    errors.push_back(relative_error(got[0].row(0), wanted.row(299)));
    for (std::size_t i = first + 300; i < first + 302; ++i) {
      const auto one = run(*engine, ours, all.subspan(i, 1));
      errors.push_back(
          relative_error(one.row(0), run(reference, theirs, all.subspan(i, 1)).row(0)));
    }
  }
  CHECK(engine->stats().steps == 6);
  CAPTURE(errors);
  std::ranges::sort(errors);
  CHECK(errors[errors.size() / 2] < 0.10);
  CHECK(errors.back() < 0.5);
}

// Takes minutes.
TEST_CASE("a wide pass of two ranks sums all its rows at once and gives the reference's logits",
          "[.slow][executor]") {
  const auto card = test::emulated_card(std::uint64_t{8} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny-tp");
  const auto engine = emulated_engine({card->driver(), card->driver()}, model.open());
  auto reference = model.engine({.threads = 2, .tp_size = 2, .max_context = 2048});
  const auto tokens = test::some_tokens(engine->config().vocab_size, 301);
  const auto all = std::span(tokens);
  const auto ours = engine->create_sequence();
  const auto theirs = reference.create_sequence();
  const SequenceStep chunk{
      .sequence = ours, .tokens = all.subspan(0, 300), .logits = LogitsOf::last};
  const auto got = engine->step({&chunk, 1});
  const auto wanted = run(reference, theirs, all.subspan(0, 300));
  CHECK(engine->stats().steps == 1);
  CHECK(relative_error(got[0].row(0), wanted.row(299)) < 0.5);
  // What later tokens read of it.
  const auto one = run(*engine, ours, all.subspan(300, 1));
  CHECK(relative_error(one.row(0), run(reference, theirs, all.subspan(300, 1)).row(0)) < 0.5);
}

TEST_CASE("two tensor parallel ranks that share a card give the reference's logits",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny-tp");
  auto engine = emulated_engine({card->driver(), card->driver()}, model.open());
  auto reference = model.engine({.threads = 2, .tp_size = 2, .max_context = 2048});
  const auto tokens = test::some_tokens(engine->config().vocab_size, 7);
  const auto all = std::span(tokens);
  const auto ours = engine->create_sequence();
  const auto theirs = reference.create_sequence();
  std::vector<double> errors;
  std::vector<float> decoded;
  for (const auto& [first, count] : {std::pair{0, 5}, {5, 1}, {6, 1}}) {
    const auto part = all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    const auto got = run(*engine, ours, part);
    const auto wanted = run(reference, theirs, part);
    for (int r = 0; r < wanted.rows; ++r)
      errors.push_back(relative_error(got.row(r), wanted.row(r)));
    decoded = got.values;
  }
  std::ranges::sort(errors);
  CAPTURE(errors);
  CHECK(errors[errors.size() / 2] < 0.10);
  CHECK(errors.back() < 0.5);
  engine->rollback(ours, 6);
  CHECK(run(*engine, ours, all.subspan(6, 1)).values == decoded);

  const int kept = card->live_objects();
  engine.reset();
  CHECK(card->live_objects() < kept);
}

TEST_CASE("four tensor parallel ranks give the logits of the reference's four", "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{8} << 30, test::kEmulatedMultiprocessors);
  // As many heads as fill a tile on each rank.
  std::string json = test::read_file(test::golden_dir() / "reference/tiny-tp.json");
  const std::string heads = "\"num_attention_heads\": 16";
  json.replace(json.find(heads), heads.size(), "\"num_attention_heads\": 32");
  const test::TempDir folder;
  std::ofstream(folder / "config.json") << json;
  SynthOptions options;
  options.config_json = folder / "config.json";
  options.out = folder / "model";
  value_or_throw(write_synthetic_checkpoint(options, [](std::uint64_t, std::uint64_t) {}));
  const auto open = [&] { return value_or_throw(open_checkpoint(folder / "model")); };

  const auto engine = emulated_engine(std::vector(4, card->driver()), open());
  ReferenceEngine reference(open(), {.threads = 2, .tp_size = 4, .max_context = 2048});
  const auto tokens = test::some_tokens(engine->config().vocab_size, 3);
  const auto got = run(*engine, engine->create_sequence(), tokens);
  const auto wanted = run(reference, reference.create_sequence(), tokens);
  std::vector<double> errors;
  for (int r = 0; r < wanted.rows; ++r)
    errors.push_back(relative_error(got.row(r), wanted.row(r)));
  std::ranges::sort(errors);
  CAPTURE(errors);
  CHECK(errors[errors.size() / 2] < 0.10);

  // Without leave no two ranks go onto one card.
  std::vector<DeviceRank> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    auto context = cu::Context::retain(card->driver(), 0);
    auto weights = value_or_throw(executor::DeviceWeights::load(
        context, open(), {.tp_rank = rank, .tp_size = 4, .threads = 2}));
    ranks.push_back({std::move(context), std::move(weights)});
  }
  CHECK_THROWS_WITH(DeviceEngine(std::move(ranks), engine->config(), test::emulated_source(),
                                 {.max_context = 2048, .max_sequences = 1}),
                    Catch::Contains("a card of its own"));
}

TEST_CASE("a tensor parallel rank that fails takes the others down with one message",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny-tp");
  auto engine = emulated_engine({card->driver(), failing_driver(*card->driver())}, model.open());
  const auto tokens = test::some_tokens(engine->config().vocab_size, 1);
  const auto sequence = engine->create_sequence();
  g_launches_left = 20;  // within the first layer
  CHECK_THROWS_WITH(run(*engine, sequence, tokens), Catch::Contains("launching a kernel"));
  // Nothing waits for the rank that is gone, and nothing goes on with unequal ranks.
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(run(*engine, sequence, tokens), Catch::Contains("open the model again"));
  engine.reset();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5) * test::kPatience);
}

TEST_CASE("a rank does not wait for ever for one that never comes", "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny-tp");
  auto engine =
      emulated_engine({card->driver(), silent_driver(*card->driver())}, model.open(), 300);
  const auto tokens = test::some_tokens(engine->config().vocab_size, 1);
  CHECK_THROWS_WITH(run(*engine, engine->create_sequence(), tokens),
                    Catch::Contains("did not answer"));
}
