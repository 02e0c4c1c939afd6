#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "src/plan/kernel_requests.hpp"
#include "src/trials/link_trials.hpp"
#include "src/trials/step_trials.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tests/gpu/device_model.hpp"
#include "tests/src/trials/planted_errors.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig flash() {
  return value_or_throw(read_model_config(test::golden_dir().parent_path().parent_path() /
                                          "configs/deepseek-v4-flash/config.json"));
}

/// The templates with one error planted.
jit::SourceTree planted(const test::PlantedError& error) {
  const jit::SourceTree tree = kernels::embedded_templates();
  std::vector<jit::SourceFile> files;
  for (const std::string& name : tree.names()) {
    std::string text = *tree.find(name);
    if (name == error.file) {
      const auto at = text.find(error.from);
      REQUIRE(at != std::string::npos);
      text.replace(at, std::string(error.from).size(), error.to);
    }
    files.push_back({name, std::move(text)});
  }
  return jit::SourceTree(std::move(files));
}

struct Job {
  TuningRequest request;
  const test::PlantedError* error;
  jit::Variant variant;  ///< of the error's family
  std::shared_ptr<const jit::CacheEntry> reference, right, wrong;
};

/// For each family of a step of the bucket the first request that it may serve.
std::vector<Job> jobs_of(const std::vector<StepBucket>& buckets, const cu::DeviceLimits& limits,
                         std::set<std::string>& seen) {
  std::vector<Job> jobs;
  for (const TuningRequest& request :
       value_or_throw(trials::tuning_plan(flash(), 1, buckets, limits)).requests) {
    for (const std::string& family : request.families()) {
      if (!seen.insert(family).second) continue;
      const auto error = std::find_if(test::planted_errors().begin(), test::planted_errors().end(),
                                      [&](const auto& one) { return family == one.family; });
      CAPTURE(family);
      REQUIRE(error != test::planted_errors().end());
      const auto variant =
          std::find_if(request.candidates.begin(), request.candidates.end(),
                       [&](const jit::Variant& one) { return one.family == family; });
      jobs.push_back({request, &*error, *variant, nullptr, nullptr, nullptr});
    }
  }
  return jobs;
}

}  // namespace

TEST_CASE("what ranks launch together is tried on both of two, and timed",
          "[gpu][tp][tuning][long]") {
  const int cards = GENERATE(1, 2);  // one stands for both ranks
  CAPTURE(cards);
  auto driver = test::driver_or_skip(cards);
  if (!driver) return;
  std::vector<cu::Context> contexts;
  for (int rank = 0; rank < 2; ++rank)
    contexts.push_back(cu::Context::retain(driver, rank % cards));
  const auto source = test::kernel_source(contexts.front());
  const auto limits = cu::limits_of(contexts.front().device());
  const auto plan = value_or_throw(trials::tuning_plan(
      flash(), 2, trials::deployed_buckets({1, 64}, {512}, {4096}, true), limits));
  REQUIRE(plan.collectives.size() == 11);
  trials::LinkTrials runner(std::move(contexts), source.kernels, flash(), source.device.arch);
  Verifier verifier(runner);
  const auto compiler =
      std::shared_ptr<jit::Compiler>(new jit::CompilePool(jit::CompilePool::with_nvrtc(
          value_or_throw(jit::find_nvrtc(test::library_directories())), 8)));
  const test::PlantedError errors[] = {
      {"all_reduce", "all_reduce.cuh", "r = 1; r < RANKS; ++r", "r = 0; r < RANKS; ++r"},
      {"all_reduce_wide", "all_reduce_wide.cuh", "owner * share_, end", "args_.rank * share_, end"},
      {"all_gather", "all_gather.cuh", "row * RANKS + args.rank", "row * RANKS"}};
  for (const TuningRequest& request : plan.collectives) {
    CAPTURE(request.title());
    const auto compiled = [&](jit::KernelStore& store, const jit::Variant& variant) {
      const auto entry = value_or_throw(
          store.get({.variant = variant, .arch = source.device.arch, .allow_spills = true}));
      return TrialKernel{variant, entry->kernel.cubin};
    };
    const auto cases = value_or_throw(runner.enter(request.families(), request.problem));
    const TrialKernel reference = compiled(*source.kernels, request.candidates.front());
    value_or_throw(verifier.set_reference(reference, cases));
    double best_us = 0;
    for (const jit::Variant& variant : request.candidates) {
      CAPTURE(jit::describe(variant));
      const TrialKernel kernel = compiled(*source.kernels, variant);
      CHECK(value_or_throw(verifier.check(kernel)).value_or("it agrees") == "it agrees");
      const double us = value_or_throw(runner.time_us(kernel));
      CHECK(us > 0);
      best_us = best_us == 0 ? us : std::min(best_us, us);
    }
    fmt::print("{} card(s), {}: default {:.2f} us, best {:.2f} us of {}\n", cards, request.title(),
               value_or_throw(runner.time_us(reference)), best_us, request.candidates.size());
    const auto& error = *std::ranges::find(errors, request.families().front(),
                                           [](const auto& of) { return std::string(of.family); });
    jit::KernelStore damaged(planted(error), compiler, {.directories = {}});
    CHECK(value_or_throw(verifier.check(compiled(damaged, request.candidates.front()))));
  }
}

TEST_CASE("a wrong constant in any family of V4-Flash's steps is caught on a GPU",
          "[gpu][tuning][long]") {
  auto context = test::gpu_context_or_skip();
  if (!context) return;
  const auto source = test::kernel_source(*context);
  const std::string arch = source.device.arch;
  const std::vector<StepBucket> buckets = trials::deployed_buckets({1, 64}, {}, {4096}, true);
  std::set<std::string> seen;
  std::vector<Job> jobs = jobs_of(buckets, cu::limits_of(context->device()), seen);

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto compiler =
      std::shared_ptr<jit::Compiler>(new jit::CompilePool(jit::CompilePool::with_nvrtc(
          value_or_throw(jit::find_nvrtc(test::library_directories())), cores)));
  std::vector<std::jthread> threads;
  for (Job& job : jobs) {
    threads.emplace_back([&] {
      jit::KernelStore damaged(planted(*job.error), compiler, {.directories = {}});
      const auto get = [&](jit::KernelStore& store, const jit::Variant& variant) {
        return value_or_throw(store.get({.variant = variant, .arch = arch, .allow_spills = true}));
      };
      job.reference = get(*source.kernels, job.request.candidates.front());
      job.right = get(*source.kernels, job.variant);
      job.wrong = get(damaged, job.variant);
    });
  }
  threads.clear();

  trials::StepTrials runner(std::move(*context), source.kernels,
                            {.config = flash(), .tp_size = 1, .buckets = buckets}, arch, cores);
  Verifier verifier(runner);
  for (const Job& job : jobs) {
    CAPTURE(job.request.title(), jit::describe(job.variant));
    const auto cases = value_or_throw(runner.enter(job.request.families(), job.request.problem));
    value_or_throw(verifier.set_reference(
        {job.request.candidates.front(), job.reference->kernel.cubin}, cases));
    const auto right = value_or_throw(verifier.check({job.variant, job.right->kernel.cubin}));
    CHECK(right.value_or("it agrees") == "it agrees");
    const auto wrong = value_or_throw(verifier.check({job.variant, job.wrong->kernel.cubin}));
    CHECK(wrong.has_value());
    CHECK(value_or_throw(runner.time_us({job.variant, job.right->kernel.cubin})) > 0);
  }
}
