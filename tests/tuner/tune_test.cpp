// The whole tuning with a made-up compiler and stopwatch.
#include "tuner/tune.hpp"

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "runtime/base/subprocess.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tuner/fake_bench.hpp"
#include "tests/tuner/tuning_fixture.hpp"
#include "tuner/child_bench.hpp"

using namespace ingot;
using test::FakeBench;
using test::FakeClock;
using test::tile_variant;
using test::tuning_request;

namespace {

std::string name(const std::string& family, int tile) {
  return jit::describe(tile_variant(family, tile));
}

const CandidateRecord& find(const TuningRecord& record, const std::string& family, int tile) {
  return *std::find_if(record.candidates.begin(), record.candidates.end(),
                       [&](const auto& c) { return c.variant == tile_variant(family, tile); });
}

/// A tuning of some requests in a folder, with everything made up.
struct Made {
  test::TempDir folder;
  std::unique_ptr<jit::KernelStore> kernels = test::tuning_kernels(folder / "kernels");
  TuningStore records{std::vector{folder / "tuning"}};
  FakeClock clock;
  FakeBench bench{clock};
  SingleRank alone;
  TuneOptions options{.device = test::tuning_device(), .policy = "p", .now_s = clock.reader()};
  std::string said;  ///< by the last run, on standard error

  TuneReport run(const std::vector<TuningRequest>& requests) {
    TuneReport report;
    said = test::standard_error_of(
        [&] { report = tune(requests, *kernels, bench, records, alone, options); });
    return report;
  }
  std::size_t files() const { return TuningCache(folder / "tuning").files().size(); }
};

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a tuning chooses the fastest, writes down the rest, and is not repeated",
          "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("simt", 2), 50}, {name("mma", 32), 50.9}, {name("mma", 16), 200}};
  const auto report = made.run({tuning_request(1), tuning_request(2)});
  CHECK(report.count(TuneState::tuned) == 2);
  CHECK(report.coverage() ==
        "2 of 2 kernels are tuned (2 now, 0 before), 0 cut short, 0 left, 0 failed; 0 have no "
        "choice");
  CHECK(made.said.empty());
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.complete);
  CHECK(record.chosen().variant == tile_variant("simt", 2));
  CHECK(record.chosen().time_us == 50);
  CHECK(record.gain() == 2);
  CHECK(find(record, "mma", 32).standing == Standing::slower);
  CHECK(find(record, "mma", 16).standing == Standing::dropped);
  CHECK(find(record, "mma", 16).reason == "behind after round 1, not verified");
  CHECK(find(record, "mma", 16).samples_us == std::vector<double>{200});
  CHECK(record.rejections == tuning_request().rejections);

  made.bench.measured = 0;
  const auto again = made.run({tuning_request(1), tuning_request(2)});
  CHECK(again.count(TuneState::known) == 2);
  CHECK(*again.requests[0].record == record);
  CHECK(made.bench.measured == 0);
  made.options.retune = true;
  CHECK(made.run({tuning_request(1)}).count(TuneState::tuned) == 1);
  CHECK(made.files() == 2);
}

TEST_CASE("tuner: noise of 3 % does not hide a candidate that is 10 % faster", "[cpu][tuner]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Made made;
    made.bench.noise = 0.03;
    made.bench.reseed(seed);
    made.bench.time_us = {{name("mma", 32), 90}};
    const auto report = made.run({tuning_request()});
    REQUIRE(report.count(TuneState::tuned) == 1);
    CHECK(report.requests[0].record->chosen().variant == tile_variant("mma", 32));
    CHECK(report.requests[0].record->noise < 0.06);
    CHECK(report.requests[0].record->chosen().spread > 0);
  }
}

TEST_CASE("tuner: two tunings with noise differ only in listed ties", "[cpu][tuner]") {
  const auto tuned = [](unsigned seed) {
    Made made;
    made.bench.noise = 0.03;
    made.bench.reseed(seed);
    made.bench.time_us = {{name("mma", 32), 90}, {name("simt", 1), 91}, {name("simt", 2), 90.5}};
    return *made.run({tuning_request()}).requests[0].record;
  };
  for (unsigned seed = 0; seed < 20; ++seed) {
    const TuningRecord a = tuned(seed);
    const TuningRecord b = tuned(1000 + seed);
    for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
      const auto& params = one.chosen().variant;
      const Standing standing =
          find(other, params.family, static_cast<int>(params.params[0].value)).standing;
      CHECK((standing == Standing::chosen || standing == Standing::tie));
    }
  }
}

TEST_CASE("tuner: a wrong candidate that is the fastest is barred and reported", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 16), 1}, {name("simt", 1), 90}};
  made.bench.fates = {{name("mma", 16), {Trial::End::wrong}}};
  const auto report = made.run({tuning_request(1), tuning_request(2)});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.chosen().variant == tile_variant("simt", 1));
  CHECK(find(record, "mma", 16).standing == Standing::barred);
  CHECK(find(record, "mma", 16).reason == "as made up");
  CHECK(find(record, "mma", 16).samples_us == std::vector<double>{1});
  CHECK_THAT(made.said, Catch::Contains(name("mma", 16) + " is barred: as made up"));
  CHECK(lines_in(made.said) == 1);
  // Barred by name for the second request too, which does not try it.
  CHECK(made.bench.verified == 5 + 1 + 4);  // and once the reference, when one is wrong
  CHECK(find(*report.requests[1].record, "mma", 16).standing == Standing::barred);
  CHECK_FALSE(made.kernels->get({.variant = tile_variant("mma", 16), .arch = "sm_90a"}));
  // Until its template changes.
  const auto changed = test::tuning_kernels(
      made.folder / "kernels", std::make_shared<test::FakeCompiler>(), "int mended;\n");
  CHECK(changed->get({.variant = tile_variant("mma", 16), .arch = "sm_90a"}));
}

TEST_CASE("tuner: what cannot win is neither verified nor measured again", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 32), 50}, {name("simt", 1), 60}};
  made.bench.fates = {{name("simt", 2), {Trial::End::wrong}}};
  const auto report = made.run({tuning_request()});
  CHECK(made.bench.verified == 2);
  CHECK(made.bench.measured < 6 + 20);
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.complete);
  CHECK(record.gain() == 2);
  // Not known to be wrong, and not known to be right: no time that a choice could go by.
  CHECK(find(record, "simt", 2).standing == Standing::dropped);
  CHECK(find(record, "simt", 2).time_us == 0);
  CHECK(find(record, "mma", 64).time_us == 100);  // the reference
  CHECK(made.said.empty());
}

TEST_CASE("tuner: where all that were near fall out, those behind them are raced", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 32), 50}, {name("mma", 16), 55}, {name("simt", 1), 90}};
  made.bench.fates = {{name("mma", 32), {Trial::End::hung, true}},
                      {name("mma", 16), {Trial::End::wrong}}};
  const auto report = made.run({tuning_request()});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.complete);
  CHECK(record.chosen().variant == tile_variant("simt", 1));
  CHECK(record.chosen().samples_us.size() >= 3);
}

TEST_CASE("tuner: a candidate that writes over others' inputs bars none of them", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 32), 50}, {name("simt", 1), 49}};
  made.bench.vandal = name("mma", 128);  // slow: it is never verified itself
  const auto report = made.run({tuning_request()});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.chosen().variant == tile_variant("simt", 1));
  CHECK(find(record, "mma", 32).standing != Standing::barred);
  CHECK(made.bench.entered == 2);
  CHECK(made.said.empty());
}

TEST_CASE("tuner: a candidate that hangs is barred and the tuning goes on", "[cpu][tuner]") {
  Made made;
  const bool while_measuring = GENERATE(false, true);
  made.bench.fates = {{name("mma", 32), {Trial::End::hung, while_measuring}}};
  made.bench.time_us = {{name("mma", 32), 50}, {name("mma", 128), 90}};
  const auto report = made.run({tuning_request()});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.complete);
  CHECK(record.chosen().variant == tile_variant("mma", 128));
  CHECK(find(record, "mma", 32).standing == Standing::barred);
}

TEST_CASE("tuner: a candidate that faults is barred and the tuning goes on", "[cpu][tuner]") {
  Made made;
  const bool while_measuring = GENERATE(false, true);
  made.bench.fates = {{name("simt", 1), {Trial::End::faulted, while_measuring}}};
  made.bench.time_us = {{name("simt", 1), 50}, {name("mma", 128), 90}};
  const auto report = made.run({tuning_request()});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.complete);
  CHECK(record.chosen().variant == tile_variant("mma", 128));
  CHECK(find(record, "simt", 1).standing == Standing::barred);
}

TEST_CASE("tuner: hanging, faulting and wrong candidates in a real child process", "[cpu][tuner]") {
  Made made;
  ChildBench bench({.worker_command = {"/proc/self/exe", "fake-trials"},
                    .trial_timeout = std::chrono::seconds(1)});
  TuneReport report;
  const std::vector<TuningRequest> requests{tuning_request(1), tuning_request(2),
                                            tuning_request(2000)};
  made.options.now_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  made.said = test::standard_error_of([&] {
    report = tune(requests, *made.kernels, bench, made.records, made.alone, made.options);
  });
  CHECK(report.count(TuneState::tuned) == 2);
  CHECK(report.count(TuneState::failed) == 1);
  CHECK_THAT(report.requests[2].reason, Catch::EndsWith("no inputs for this problem"));
  const TuningRecord& record = *report.requests[1].record;
  CHECK(record.chosen().variant == tile_variant("simt", 1));  // 7 us
  CHECK_THAT(find(*report.requests[0].record, "mma", 16).reason,
             Catch::StartsWith("edge case \"empty row\": lse[2]"));
  for (const int tile : {16, 32, 128})
    CHECK(find(record, "mma", tile).standing == Standing::barred);
  CHECK(bench.children_started() == 3);  // after the one that hung and the one that faulted
  CHECK(lines_in(made.said) == 4);       // three bars and the request that cannot be tuned
}

TEST_CASE("tuner: a tie is broken by the space's order and listed", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 128), 50.1}, {name("simt", 1), 50}, {name("simt", 2), 50.5}};
  const auto report = made.run({tuning_request()});
  const TuningRecord& record = *report.requests[0].record;
  CHECK(record.chosen().variant == tile_variant("mma", 128));
  CHECK(find(record, "simt", 1).standing == Standing::tie);
  CHECK(find(record, "simt", 2).standing == Standing::tie);
  CHECK(find(record, "mma", 64).standing == Standing::dropped);
  CHECK(find(record, "simt", 1).samples_us.size() == 10);  // a close race runs to the last round
}

TEST_CASE("tuner: a budget of zero tunes nothing, compiles nothing and says so", "[cpu][tuner]") {
  Made made;
  made.options.budget_s = 0;
  const auto report = made.run({tuning_request(1), tuning_request(2)});
  CHECK(report.count(TuneState::left) == 2);
  CHECK(report.coverage() ==
        "0 of 2 kernels are tuned (0 now, 0 before), 0 cut short, 2 left, 0 failed; 0 have no "
        "choice");
  CHECK(made.bench.entered == 0);
  CHECK(made.kernels->stats().compiled == 0);
  CHECK(made.files() == 0);
}

TEST_CASE("a budget that ends within a request keeps what it has, and the next run finishes",
          "[cpu][tuner]") {
  Made made;
  // Entering, a first look at six and five verifications take 0.12 s; a whole race 0.3 s and more.
  made.bench.time_us = {{name("mma", 32), 90}};
  made.options.budget_s = 0.15;
  const auto first = made.run({tuning_request(1), tuning_request(2)});
  CHECK(first.requests[0].state == TuneState::cut_short);
  CHECK(first.requests[1].state == TuneState::left);
  CHECK_FALSE(first.requests[0].record->complete);
  CHECK(first.requests[0].record->chosen().variant == tile_variant("mma", 32));
  CHECK(made.files() == 1);
  // Before anything is measured there is nothing to keep.
  made.options.budget_s = 0.03;
  CHECK(made.run({tuning_request(3)}).count(TuneState::left) == 1);
  CHECK(made.files() == 1);
  made.options.budget_s = 100;
  const auto second = made.run({tuning_request(1), tuning_request(2)});
  CHECK(second.count(TuneState::tuned) == 2);
  CHECK(second.requests[0].record->complete);
}

TEST_CASE("a tuning that is asked to end does so as one whose budget is spent", "[cpu][tuner]") {
  Made made;
  made.bench.time_us = {{name("mma", 32), 90}};
  const double end_s = made.clock.now_s + 0.15;
  made.options.asked_to_end = [&] { return made.clock.now_s >= end_s; };
  const auto first = made.run({tuning_request(1), tuning_request(2)});
  CHECK(first.requests[0].state == TuneState::cut_short);
  CHECK(first.requests[0].record->chosen().variant == tile_variant("mma", 32));
  CHECK(first.requests[1].state == TuneState::left);
  CHECK(first.seconds < 0.2);
  made.options.asked_to_end = [] { return true; };
  CHECK(made.run({tuning_request(3)}).count(TuneState::left) == 1);
  CHECK(made.files() == 1);
}

TEST_CASE("tuner: a kill at any point harms no record, and the next run resumes",
          "[cpu][tuner][stress]") {
  constexpr int kRequests = 60;
  const test::TempDir folder;
  std::mt19937 random(5);
  std::size_t before = 0;
  int killed = 0;
  for (int round = 0; round < 25 || (before == 0 && round < 200); ++round) {
    CAPTURE(round);
    auto child = value_or_throw(Subprocess::spawn(
        {"/proc/self/exe", "tune", folder.path().string(), std::to_string(kRequests)}));
    // From its beginning on, however long the machine takes to get there; later in later rounds, so
    // that some records are there on a slow machine too.
    std::string frame;
    REQUIRE(read_frame(child.channel(), frame) == FrameStatus::ok);
    const auto latest = static_cast<unsigned>(2000 * (1 + round));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % latest));
    child.kill();
    killed += child.wait().signal == SIGKILL ? 1 : 0;
    const TuningCache cache(folder / "tuning");
    const auto files = cache.files();
    REQUIRE(files.size() >= before);
    before = files.size();
    for (const CacheFile& file : files)
      REQUIRE(TuningCache::read(file.path));
  }
  CHECK(killed > 0);
  CHECK(before > 0);
  auto child = value_or_throw(Subprocess::spawn(
      {"/proc/self/exe", "tune", folder.path().string(), std::to_string(kRequests)}));
  CHECK(child.wait().exit_status == 0);
  CHECK_THAT(child.output_tail(),
             Catch::Contains(std::to_string(kRequests) + " of " + std::to_string(kRequests) +
                             " kernels are tuned (" + std::to_string(kRequests - int(before)) +
                             " now, " + std::to_string(before) + " before)"));
}

TEST_CASE("tuner: a space that changed since is tuned anew", "[cpu][tuner]") {
  Made made;
  CHECK(made.run({tuning_request()}).count(TuneState::tuned) == 1);
  TuningRequest wider = tuning_request();
  wider.candidates.push_back(tile_variant("simt", 4));
  made.bench.time_us = {{name("simt", 4), 10}};
  const auto report = made.run({wider});
  CHECK(report.count(TuneState::tuned) == 1);
  CHECK(report.requests[0].record->chosen().variant == tile_variant("simt", 4));
  CHECK(made.run({tuning_request()}).count(TuneState::known) == 1);  // the other key's is there
}

TEST_CASE("candidates that do not compile or spill are barred, others are tuned", "[cpu][tuner]") {
  Made made;
  TuningRequest request = tuning_request();
  // The made-up compiler goes by words in the source: here by names of parameters.
  for (const char* word : {"FAIL", "SPILL"}) {
    auto variant = tile_variant("simt", 4);
    variant.params.push_back({"int", word, 1});
    request.candidates.push_back(variant);
  }
  const auto report = made.run({request});
  CHECK(report.count(TuneState::tuned) == 1);
  const auto& candidates = report.requests[0].record->candidates;
  CHECK(candidates[6].standing == Standing::barred);
  CHECK(candidates[7].standing == Standing::barred);
  CHECK_THAT(candidates[7].reason, Catch::Contains("it spills registers"));
  CHECK(made.bench.verified == 5);
}

TEST_CASE("a reference that cannot run fails its request alone", "[cpu][tuner]") {
  Made made;
  TuningRequest broken = tuning_request(9);
  broken.candidates[0].params.push_back({"int", "FAIL", 1});
  const auto report = made.run({broken, tuning_request(1)});
  CHECK(report.requests[0].state == TuneState::failed);
  CHECK(report.requests[1].state == TuneState::tuned);
  CHECK(lines_in(made.said) == 1);
  CHECK(made.files() == 1);
  made.bench.entering = {.end = Trial::End::faulted, .reason = "gone"};
  CHECK_THAT(made.run({tuning_request(2)}).requests[0].reason, Catch::EndsWith("gone"));
}

TEST_CASE("a request with one candidate has no choice and is not measured", "[cpu][tuner]") {
  Made made;
  TuningRequest single = tuning_request();
  single.candidates.resize(1);
  const auto report = made.run({single});
  CHECK(report.count(TuneState::no_choice) == 1);
  CHECK(made.bench.entered == 0);
  CHECK(made.files() == 0);
}

TEST_CASE("progress names the request and the step", "[cpu][tuner]") {
  Made made;
  std::vector<std::string> steps;
  made.options.progress = [&](const TuneProgress& progress) {
    if (steps.empty() || steps.back() != progress.step) steps.emplace_back(progress.step);
    CHECK(progress.title == "mma+simt rows=1 cols=4096");
    CHECK(progress.requests == 1);
    CHECK(progress.candidates_left <= progress.candidates);
  };
  (void)made.run({tuning_request()});
  CHECK(steps == std::vector<std::string>{"compiling", "measuring", "verifying", "measuring"});
}

TEST_CASE("the policy of measuring is a part of the key", "[cpu][tuner]") {
  const std::string text = policy_text({}, {});
  CHECK_THAT(text, Catch::StartsWith("method 2; graph, 5 to 30 replays"));
  CHECK(policy_text({.drop_behind = 0.5}, {}) != text);
  CHECK(policy_text({}, {.max_replays = 50}) != text);
}
