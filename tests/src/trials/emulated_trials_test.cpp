// Trials of kernels in the step of a small model, run thread by thread.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "kernel_templates/family.hpp"
#include "runtime/base/subprocess.hpp"
#include "src/plan/kernel_requests.hpp"
#include "src/trials/step_trials.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tests/src/trials/planted_errors.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/emulator/emulated_kernels.hpp"
#include "tests/support/temp_dir.hpp"
#include "tuner/child_bench.hpp"
#include "tuner/trial_worker.hpp"
#include "tuner/tune.hpp"

using namespace ingot;

namespace {

trials::TrialScope small_scope() {
  return {.config = value_or_throw(read_model_config(test::golden_dir() / "reference/tiny.json")),
          .tp_size = 1,
          .buckets = trials::deployed_buckets({1}, {}, {2048}, true)};
}

/// Runs all launches once, as a graph would; time does not matter.
double run_once(const cu::Context&, const cu::Stream& stream, int launches,
                const std::function<void(int)>& queue) {
  for (int i = 0; i < launches; ++i)
    queue(i);
  stream.synchronize();
  return 10;
}

struct EmulatedTrials {
  explicit EmulatedTrials(std::shared_ptr<jit::KernelStore> kernels)
      : card(test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors)),
        runner(cu::Context::retain(card->driver(), 0), std::move(kernels), small_scope(), "sm_90a",
               2, run_once) {}
  std::unique_ptr<test::HostCard> card;
  trials::StepTrials runner;
};

/// What a step launches, in the order of the launches: each problem begins where the one before
/// it was.
std::vector<TuningRequest> plan() {
  const auto card = test::emulated_card(std::uint64_t{1} << 20, test::kEmulatedMultiprocessors);
  const auto context = cu::Context::retain(card->driver(), 0);
  std::vector<TuningRequest> requests;
  for (KernelUse& use : value_or_throw(
           kernel_uses(small_scope().config, {.batch_buckets = {1}, .context_buckets = {2048}},
                       cu::limits_of(context.device()))))
    requests.push_back(std::move(use.tuning));
  return requests;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Writes the family's template, and the file with the error, to a folder.
void plant(const test::PlantedError& error, const std::filesystem::path& overlay) {
  const auto templates = test::emulated_source_root() / "tests/support/emulator";
  std::filesystem::create_directories(overlay / "common");
  const std::string stem = std::string(error.family) + ".cuh";
  std::ofstream(overlay / stem) << text_of(templates / stem);
  std::string text = text_of(templates / error.file);
  const std::string from = error.emulated_from != nullptr ? error.emulated_from : error.from;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(from, at + 1) == std::string::npos);
  text.replace(at, from.size(), error.emulated_to != nullptr ? error.emulated_to : error.to);
  std::ofstream(overlay / error.file) << text;
}

TrialKernel compiled(jit::KernelStore& store, const jit::Variant& variant) {
  const auto entry =
      value_or_throw(store.get({.variant = variant, .arch = "sm_90a", .allow_spills = true}));
  return {variant, entry->kernel.cubin};
}

}  // namespace

/// The child of the tuning below: its trials on the emulator, with the parent's kernels.
int ingot_test_hidden_command(int, char** argv) {
  if (std::string(argv[1]) != "emulated-trials") return -1;
  EmulatedTrials trials(test::emulated_kernels_in(argv[2]));
  return serve_trials(Subprocess::kChildChannel, trials.runner);
}

TEST_CASE("a wrong constant in the template of any family of a step is caught", "[cpu][trials]") {
  const std::vector<TuningRequest> requests = plan();
  const auto store = test::emulated_kernels();
  EmulatedTrials trials(store);
  Verifier verifier(trials.runner);
  std::set<std::string> seen;
  for (const TuningRequest& request : requests) {
    // The first variant of each family: each of them must agree, and none when it is damaged.
    for (const std::string& family : request.families()) {
      if (!seen.insert(family).second) continue;
      const auto error = std::find_if(test::planted_errors().begin(), test::planted_errors().end(),
                                      [&](const auto& one) { return family == one.family; });
      CAPTURE(request.title(), family);
      REQUIRE(error != test::planted_errors().end());
      auto cases = trials.runner.enter(request.families(), request.problem);
      REQUIRE(cases);
      value_or_throw(verifier.set_reference(compiled(*store, request.candidates.front()), *cases));
      const auto& variant =
          *std::find_if(request.candidates.begin(), request.candidates.end(),
                        [&](const jit::Variant& one) { return one.family == family; });
      const auto right = value_or_throw(verifier.check(compiled(*store, variant)));
      CHECK(right.value_or("it agrees") == "it agrees");

      const test::TempDir folder;
      plant(*error, folder / "templates");
      jit::KernelStore damaged(
          kernels::embedded_templates(),
          std::shared_ptr<jit::Compiler>(std::make_shared<test::EmulatorCompiler>(
              test::emulated_source_root(), folder.path(), folder / "templates")),
          {.directories = {folder / "kernels"}, .frozen = false});
      const auto wrong = value_or_throw(verifier.check(compiled(damaged, variant)));
      CHECK(wrong.has_value());
      INFO(wrong.value_or(""));
    }
  }
  CHECK(seen.size() > 18);
}

TEST_CASE("a bucket is tuned in a child process, and found tuned afterwards", "[cpu][trials]") {
  const auto store = test::emulated_kernels();
  // Of every family one problem, with two candidates: its first and the last of all. But for splits
  // of fp8_linear: padded tokens hold NaN, which the emulator gives the bits that a split waits on.
  std::vector<TuningRequest> requests;
  std::set<std::vector<std::string>> seen;
  for (TuningRequest& request : plan()) {
    if (request.candidates.size() < 2 || !seen.insert(request.families()).second) continue;
    auto last = request.candidates.rbegin();
    while (last->family == "fp8_linear" && last->params != request.candidates.front().params &&
           jit::describe(*last).find("SPLIT_K=1 ") == std::string::npos)
      ++last;
    request.candidates = {request.candidates.front(), *last};
    requests.push_back(std::move(request));
  }
  REQUIRE(requests.size() > 10);
  ChildBench bench({.worker_command = {"/proc/self/exe", "emulated-trials",
                                       test::emulated_kernel_folder().string()},
                    .enter_timeout = std::chrono::minutes(10),
                    .trial_timeout = std::chrono::minutes(2)});
  const test::TempDir folder;
  TuningStore records({folder.path()});
  SingleRank alone;
  double now_s = 0;
  const TuneOptions options{.device = test::emulated_source().device,
                            .policy = "emulated",
                            .search = {.min_rounds = 1, .max_rounds = 1},
                            .jobs = 2,
                            .now_s = [&] { return now_s += 0.001; }};
  const TuneReport report = tune(requests, *store, bench, records, alone, options);
  for (const TunedRequest& request : report.requests) {
    CAPTURE(request.title, request.reason);
    REQUIRE(request.state == TuneState::tuned);
    for (const CandidateRecord& candidate : request.record->candidates) {
      CAPTURE(jit::describe(candidate.variant), candidate.reason);
      CHECK(candidate.standing != Standing::barred);
    }
  }
  CHECK(bench.children_started() == 1);

  TuningStore again({folder.path()});
  const TuneReport second = tune(requests, *store, bench, again, alone, options);
  CHECK(second.count(TuneState::known) == static_cast<int>(requests.size()));
}
