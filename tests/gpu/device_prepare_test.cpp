// What the device engine makes ready ahead of a turn.
#include <fmt/ranges.h>

#include <catch2/catch.hpp>

#include "tests/gpu/device_model.hpp"
#include "tests/support/prepared_turn.hpp"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("a turn that was prepared records and loads nothing, and says what it would have said",
          "[gpu][model][prepare]") {
  const SyntheticModel model("tiny");
  const DeviceOptions options{.max_context = 8192, .max_sequences = 2, .context_tokens = 16384};
  const auto unprepared = device_engine(model.open(), options);
  if (!unprepared) return;
  const auto wanted = run_turn(*unprepared);  // compiles
  CHECK(run_turn(*unprepared) == wanted);
  CHECK(unprepared->stats().graphs == 4);

  const auto timed = [&](bool prepares) {
    const auto engine = device_engine(model.open(), options);
    std::vector<double> pieces, steps;
    const auto piece = [&] {
      const auto begin = std::chrono::steady_clock::now();
      const bool more = engine->prepare(kCrossingTurn);
      const auto took = std::chrono::steady_clock::now() - begin;
      pieces.push_back(std::chrono::duration<double, std::milli>(took).count());
      return more;
    };
    while (prepares && piece()) {
    }
    const DeviceStats before = engine->stats();
    if (prepares) {
      CHECK(before.buckets == 4);
      CHECK(before.graphs == 4);
    }
    CHECK(run_turn(*engine, &steps) == wanted);
    const DeviceStats after = engine->stats();
    if (prepares) {
      CHECK(after.buckets == 4);
      CHECK(after.graphs == 4);
      CHECK(after.graph_steps == after.steps);
    }
    fmt::print("{}: pieces {::.1f} ms; steps {::.1f} ms; graphs take {} KiB\n",
               prepares ? "prepared" : "as it comes", pieces, steps, after.graph_bytes / 1024);
  };
  for (int round = 0; round < 2; ++round) {
    timed(false);
    timed(true);
  }
}
