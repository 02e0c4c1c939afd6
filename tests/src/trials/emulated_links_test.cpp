// Trials of what all ranks launch together, on ranks that share the emulated card.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>

#include "kernel_templates/family.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/trials/link_trials.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/emulator/emulated_kernels.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

constexpr int kRanks = 2;

// A card runs kernels by a plain function.
std::atomic<int> g_launches = 0, g_early_launches = 0;

void run_and_count(const cu::CUlaunchConfig& config, void* kernel, const void* arguments) {
  ++g_launches;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == cu::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      ++g_early_launches;
  }
  test::run_on_emulator(config, kernel, arguments);
}

ModelConfig small_config() {
  return value_or_throw(read_model_config(test::golden_dir() / "reference/tiny-tp.json"));
}

struct EmulatedLinks {
  EmulatedLinks()
      : card(std::make_unique<test::HostCard>(std::uint64_t{1} << 30,
                                              test::kEmulatedMultiprocessors, run_and_count)),
        store(test::emulated_kernels()) {
    std::vector<cu::Context> contexts;
    for (int rank = 0; rank < kRanks; ++rank)
      contexts.push_back(cu::Context::retain(card->driver(), 0));
    limits = cu::limits_of(contexts.front().device());
    runner = std::make_unique<trials::LinkTrials>(std::move(contexts), store, small_config(),
                                                  "sm_90a", 1);
  }
  std::unique_ptr<test::HostCard> card;
  std::shared_ptr<jit::KernelStore> store;
  cu::DeviceLimits limits;
  std::unique_ptr<trials::LinkTrials> runner;
};

TrialKernel compiled(jit::KernelStore& store, const jit::Variant& variant) {
  const auto entry =
      value_or_throw(store.get({.variant = variant, .arch = "sm_90a", .allow_spills = true}));
  return {variant, entry->kernel.cubin};
}

/// The store with one text of a template replaced.
std::unique_ptr<jit::KernelStore> damaged_store(const test::TempDir& folder, const char* file,
                                                const std::string& from, const std::string& to) {
  const auto templates = test::emulated_source_root() / "tests/support/emulator";
  std::ifstream in(templates / file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(from, at + 1) == std::string::npos);
  text.replace(at, from.size(), to);
  std::filesystem::create_directories(folder / "templates");
  std::ofstream(folder / "templates" / file) << text;
  return std::make_unique<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(std::make_shared<test::EmulatorCompiler>(
          test::emulated_source_root(), folder.path(), folder / "templates")),
      jit::KernelStore::Options{.directories = {folder / "kernels"}, .frozen = false});
}

}  // namespace

TEST_CASE("sums and logits over ranks are tried on all of them, and a wrong one is caught",
          "[cpu][trials]") {
  EmulatedLinks links;
  const auto plan = value_or_throw(trials::tuning_plan(
      small_config(), kRanks, trials::deployed_buckets({2}, {512}, {2048}, true), links.limits));
  REQUIRE(plan.collectives.size() == 8);
  Verifier verifier(*links.runner);
  const test::TempDir folders[3];
  const auto wrong_sum =
      damaged_store(folders[0], "all_reduce.cuh", "r = 1; r < RANKS; ++r", "r = 0; r < RANKS; ++r");
  const auto wrong_place =
      damaged_store(folders[1], "all_gather.cuh", "row * RANKS + args.rank", "row * RANKS");
  const auto wrong_share = damaged_store(folders[2], "all_reduce_wide.cuh", "owner * share_, end",
                                         "args_.rank * share_, end");
  for (const TuningRequest& request : plan.collectives) {
    CAPTURE(request.title());
    REQUIRE(request.candidates.size() > 1);
    const auto cases = value_or_throw(links.runner->enter(request.families(), request.problem));
    CHECK(cases.front() == "largest");
    const TrialKernel reference = compiled(*links.store, request.candidates.front());
    value_or_throw(verifier.set_reference(reference, cases));
    const TrialKernel other = compiled(*links.store, request.candidates.back());
    CHECK(value_or_throw(verifier.check(other)).value_or("it agrees") == "it agrees");
    const std::string family = request.families().front();
    jit::KernelStore& damaged = family == "all_reduce"        ? *wrong_sum
                                : family == "all_reduce_wide" ? *wrong_share
                                                              : *wrong_place;
    CHECK(value_or_throw(verifier.check(compiled(damaged, request.candidates.front()))));
    CHECK(links.runner->time_us(other));
  }
  // One that begins early would take the room of the other rank's on this card.
  CHECK(g_launches > 0);
  CHECK(g_early_launches == 0);
  // What these ranks cannot be asked.
  auto problem = plan.collectives.front().problem;
  problem.front().value = 4;
  CHECK_FALSE(links.runner->enter(plan.collectives.front().families(), problem));
  CHECK_FALSE(links.runner->enter({"embedding"}, problem));
}
