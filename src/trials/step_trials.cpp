#include "src/trials/step_trials.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tuner/measure.hpp"

namespace ingot::trials {
namespace {

using executor::KernelScratch;

/// Of the 43 layers as many as make the smallest linear (6 MB a layer) larger than three times the
/// L2 of 50 MB.
constexpr int kMostLayers = 24;
/// Layers whose routed experts are their own, the others share them by turns: the experts of one
/// token are 75 MB.
constexpr int kExpertSets = 3;
/// Launches of one measurement at least; more where these take less than kEnough_us.
constexpr int kLeastLaunches = 8;
constexpr double kEnough_us = 4000;
/// Device bytes of a bucket's pages; sequences reuse theirs where a context needs more.
constexpr std::uint64_t kMostPageBytes = 8ULL << 30;

ModelConfig first_layers(ModelConfig config, int layers) {
  config.num_layers = layers;
  config.compress_ratios.resize(static_cast<std::size_t>(layers));
  config.num_hash_layers = std::min(config.num_hash_layers, layers);
  config.num_mtp_layers = 0;
  config.draft = DraftKind::none;
  return config;
}

/// As many of the first layers as hold every kind of layer that the model has.
int least_layers(const ModelConfig& config) {
  std::set<std::pair<LayerKind, bool>> all, seen;
  const auto kind = [&](int layer) {
    return std::pair(config.layer_kind(layer), layer < config.num_hash_layers);
  };
  for (int layer = 0; layer < config.num_layers; ++layer)
    all.insert(kind(layer));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    seen.insert(kind(layer));
    if (seen.size() == all.size()) return layer + 1;
  }
  return config.num_layers;
}

executor::WeightOptions weight_options(int tp_size) {
  return {.tp_rank = 0, .tp_size = tp_size, .expert_sets = kExpertSets};
}

/// Whether a step goes without a family: its tuning may be one where the user disables it.
bool left_out(std::string_view family, bool joined) {
  return !joined && family == ingot::kernels::SharedExpertFew::kStem;
}

/// A library's kernels of steps with or without the family that takes the place of several.
class Wants {
 public:
  Wants(executor::KernelLibrary& library, bool joined) : library_(library), joined_(joined) {}

  template <class First, class... Others>
  StepKernels::Slot want(const typename First::Problem& problem) {
    return library_.want<First, Others...>(problem);
  }
  const cu::DeviceLimits& limits() const { return library_.limits(); }
  bool pins(std::string_view family) const { return library_.pins(family); }
  bool disables(std::string_view family) const {
    return left_out(family, joined_) || library_.disables(family);
  }

 private:
  executor::KernelLibrary& library_;
  bool joined_;
};

/// Looks for a problem among those of a step, without a look at the candidates.
class Finder {
 public:
  using Slot = StepKernels::Slot;
  Finder(const cu::DeviceLimits& limits, const std::vector<std::string>& families,
         const std::vector<ProblemField>& problem, bool joined)
      : limits_(limits), families_(families), problem_(problem), joined_(joined) {}

  template <class First, class... Others>
  Slot want(const typename First::Problem& problem) {
    const auto serves = [&](std::string_view stem) {
      return std::find(families_.begin(), families_.end(), stem) != families_.end();
    };
    found_ = found_ || ((serves(First::kStem) || ... || serves(Others::kStem)) &&
                        problem_fields(problem) == problem_);
    return 0;
  }
  const cu::DeviceLimits& limits() const { return limits_; }
  bool disables(std::string_view family) const { return left_out(family, joined_); }
  bool found() const { return found_; }

 private:
  const cu::DeviceLimits& limits_;
  const std::vector<std::string>& families_;
  const std::vector<ProblemField>& problem_;
  bool joined_;
  bool found_ = false;
};

TrialScope with_fitting_layers(TrialScope scope, std::uint64_t free_bytes) {
  const int least = least_layers(scope.config);
  int layers = std::max(std::min(scope.config.num_layers, kMostLayers), least);
  const auto bytes = [&](int count) {
    return executor::device_weight_bytes(first_layers(scope.config, count),
                                         weight_options(scope.tp_size));
  };
  while (layers > least && bytes(layers) > free_bytes / 2)
    --layers;
  scope.config = first_layers(std::move(scope.config), layers);
  return scope;
}

}  // namespace

double graph_time_us(const cu::Context& context, const cu::Stream& stream, int launches,
                     const std::function<void(int)>& queue) {
  const cu::Graph graph = record_nodes(stream, launches, queue);
  return measure(context, stream, graph, MeasurePolicy{}).median_us;
}

/// The memory of a bucket's step: pools, buffers, and a copy of the buffers for each edge case.
struct StepTrials::Rig {
  StepBucket bucket;
  PageShare csa, hca;
  executor::DeviceState state;
  executor::StepMemory memory;
  std::vector<EdgeCase> cases;
  std::vector<cu::DeviceBuffer> kept;  // by edge case: the buffers in front of launch `kept_at`
  std::size_t kept_at = 0;             // 0: nothing is kept
  bool kept_joined = true;             // of the step as kernels_of() has it

  static PageShare share(std::int64_t context, std::int64_t page_tokens, int sequences,
                         std::uint64_t page_bytes) {
    PageShare pages{.sequences = sequences};
    pages.needed =
        static_cast<int>(std::max<std::int64_t>((context + page_tokens - 1) / page_tokens, 1));
    pages.own = pages.needed;
    if (page_bytes > 0) {
      const std::uint64_t most =
          kMostPageBytes / page_bytes / static_cast<std::uint64_t>(sequences);
      pages.own = static_cast<int>(
          std::clamp<std::uint64_t>(most, 1, static_cast<std::uint64_t>(pages.needed)));
    }
    return pages;
  }

  Rig(const cu::Context& context, const cu::Stream& stream, const TrialScope& scope,
      const StepBucket& of)
      : Rig(context, stream, scope, of, executor::state_costs(scope.config, of.context)) {}

  Rig(const cu::Context& context, const cu::Stream& stream, const TrialScope& scope,
      const StepBucket& of, const executor::StateCosts& costs)
      : bucket(of),
        csa(share(of.context, kCsaPageTokens, of.sequences, costs.csa_page)),
        hca(share(of.context, kHcaPageTokens, of.sequences, costs.hca_page)),
        state(context, scope.config,
              {.slots = of.sequences,
               .csa_pages = costs.csa_page > 0 ? csa.pool_pages() : 0,
               .hca_pages = costs.hca_page > 0 ? hca.pool_pages() : 0,
               .max_context = of.context,
               .step_rows = of.rows}),
        memory(context, stream, scope.config, scope.tp_size, of.context,
               std::max(of.rows, kMostNarrowRows)),
        cases(edge_cases(of, scope.config.vocab_size,
                         costs.csa_page > 0 ? scope.config.index_topk : 0)) {
    state.fill(stream);
    std::vector<int> row;
    for (int s = 0; s < of.sequences; ++s) {
      row.resize(static_cast<std::size_t>(csa.needed));
      for (int i = 0; i < csa.needed; ++i)
        row[static_cast<std::size_t>(i)] = csa.page(s, i);
      state.write_csa_row(stream, s, 0, row);
      stream.synchronize();
      row.resize(static_cast<std::size_t>(hca.needed));
      for (int i = 0; i < hca.needed; ++i)
        row[static_cast<std::size_t>(i)] = hca.page(s, i);
      state.write_hca_row(stream, s, 0, row);
      stream.synchronize();
    }
    for (std::size_t i = 0; i < cases.size(); ++i)
      kept.push_back(cu::DeviceBuffer::allocate(context, memory.memory().bytes()));
  }

  Stretch buffers() const { return {memory.memory().address(), memory.memory().bytes()}; }
};

struct StepTrials::Entered {
  Slot slot = 0;
  Rig* rig = nullptr;
  KernelScratch scratch_bytes;
  cu::DeviceBuffer any, any_more, ones, ones_more, counters;
  std::optional<executor::StepProgram> program;
  std::vector<std::size_t> launches;  // of the program that are of this problem
  int timed_launches = 0;             // of a measurement; 0: not yet known
  std::vector<TrialOutputs> outputs;  // by edge case, of the first of them
  struct Saved {
    Stretch at;
    std::vector<std::byte> bytes;
  };
  std::vector<std::vector<Saved>> saved;  // by edge case: state that the launch changes

  executor::StepScratch scratch() const {
    return {.any = any.as<void>(),
            .any_more = any_more.as<void>(),
            .ones = ones.as<void>(),
            .ones_more = ones_more.as<void>(),
            .ones_beside = ones.as<void>(),  // nothing runs beside another here
            .expert_counters = counters.as<kernels::u32>()};
  }
};

StepTrials::StepTrials(cu::Context context, std::shared_ptr<jit::KernelStore> kernels,
                       TrialScope scope, std::string arch, int jobs, Stopwatch stopwatch)
    : context_(std::move(context)),
      kernels_(std::move(kernels)),
      scope_(with_fitting_layers(std::move(scope), context_.free_bytes())),
      jobs_(jobs),
      stopwatch_(std::move(stopwatch)),
      stream_(cu::Stream::create(context_)),
      weights_(value_or_throw(executor::DeviceWeights::synthetic(context_, scope_.config,
                                                                 weight_options(scope_.tp_size)))),
      library_(context_, *kernels_, nullptr,
               TuningScope{.device = {.name = context_.device().name,
                                      .arch = std::move(arch),
                                      .sm_count = context_.device().sm_count,
                                      .driver_branch = {}},
                           .tp_size = scope_.tp_size,
                           .policy = {}},
               {}),
      host_(context_) {}

StepTrials::~StepTrials() {
  try {
    stream_.synchronize();
  } catch (const EngineError&) {
    // The context is gone; what is left is to free what the driver still lets us free.
  }
}

const StepKernels& StepTrials::kernels_of(const StepBucket& bucket, bool joined) {
  const auto known = wanted_.find({bucket, joined});
  if (known != wanted_.end()) return known->second;
  const StepProblems problems = step_problems(scope_.config, scope_.tp_size, bucket);
  Wants wants(library_, joined);
  StepKernels kernels = StepKernels::want(wants, scope_.config, problems);
  // Sums over ranks are left out: the rank's own take their place.
  if (problems.rank_sum) {
    kernels.expert_sum = library_.want<ingot::kernels::ExpertSum>(problems.expert_sum);
    kernels.all.push_back(kernels.expert_sum);
  }
  return wanted_.emplace(std::pair(bucket, joined), std::move(kernels)).first->second;
}

StepTrials::Rig& StepTrials::rig_of(const StepBucket& bucket) {
  const auto used = std::find_if(rigs_.begin(), rigs_.end(),
                                 [&](const auto& rig) { return rig->bucket == bucket; });
  if (used != rigs_.end()) {
    std::rotate(used, used + 1, rigs_.end());
    return *rigs_.back();
  }
  for (;;) {
    try {
      return *rigs_.emplace_back(std::make_unique<Rig>(context_, stream_, scope_, bucket));
    } catch (const EngineError& error) {
      if (rigs_.empty() || error.error().code != ErrorCode::cuda) throw;
    }
    stream_.synchronize();       // where it is not memory that lacks, this tells
    rigs_.erase(rigs_.begin());  // the one that was not used for longest
  }
}

Result<std::vector<std::string>> StepTrials::enter(const std::vector<std::string>& families,
                                                   const std::vector<ProblemField>& problem) {
  leave();
  // Each step as it usually is, then as a user may have forced it.
  for (std::size_t step = 0; step < 2 * scope_.buckets.size(); ++step) {
    const StepBucket& bucket = scope_.buckets[step % scope_.buckets.size()];
    const bool joined = step < scope_.buckets.size();
    Finder finder(library_.limits(), families, problem, joined);
    StepKernels::want(finder, scope_.config, step_problems(scope_.config, scope_.tp_size, bucket));
    if (!finder.found()) continue;
    const StepKernels& kernels = kernels_of(bucket, joined);
    const auto slot = std::find_if(kernels.all.begin(), kernels.all.end(), [&](Slot one) {
      const TuningRequest& request = library_.request(one);
      return request.problem == problem && request.families() == families;
    });
    if (slot == kernels.all.end()) continue;
    library_.prepare(jobs_);
    entered_ = std::make_unique<Entered>();
    Entered& e = *entered_;
    e.slot = *slot;
    e.rig = &rig_of(bucket);
    if (std::exchange(e.rig->kept_joined, joined) != joined) e.rig->kept_at = 0;  // other launches
    e.scratch_bytes = scratch_of(library_, kernels, bucket);
    e.scratch_bytes.make_room_for(library_.most_scratch(e.slot));
    const auto allocate = [&](std::int64_t bytes) {
      return cu::DeviceBuffer::allocate(
          context_, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256)));
    };
    e.any = allocate(e.scratch_bytes.any);
    e.any_more = allocate(e.scratch_bytes.any_more);
    e.ones = allocate(e.scratch_bytes.ones);
    e.ones_more = allocate(e.scratch_bytes.ones_more);
    e.counters = allocate(std::int64_t{kernels::MOE_COUNTER_WORDS} * 4);
    e.program.emplace(scope_.config, bucket, kernels, library_, weights_, e.rig->state,
                      e.rig->memory.buffers(), e.scratch());
    const auto& launches = e.program->launches();
    for (std::size_t i = 0; i < launches.size(); ++i)
      if (launches[i].kernel == &library_.at(e.slot)) e.launches.push_back(i);
    if (e.launches.empty()) {
      return fail(ErrorCode::unsupported,
                  "what sums over ranks cannot be tried by one of them: " + describe(problem));
    }
    capture_cases();
    std::vector<std::string> names;
    for (const EdgeCase& one : e.rig->cases)
      names.push_back(one.name);
    return names;
  }
  return fail(ErrorCode::unsupported,
              "no step of these buckets launches a kernel for " + describe(problem));
}

/// Brings the state back, so that the next problem's launch is reached from here.
void StepTrials::leave() {
  loaded_.clear();
  if (entered_ && entered_->rig != nullptr &&
      entered_->saved.size() == entered_->rig->cases.size()) {
    for (std::size_t c = 0; c < entered_->saved.size(); ++c)
      restore(c);
    stream_.synchronize();
  }
  entered_.reset();
}

/// Every byte as it is before a first launch.
void StepTrials::fill_scratch(unsigned char any) const {
  entered_->any.fill_bytes(stream_, any);
  entered_->any_more.fill_bytes(stream_, any);
  entered_->ones.fill_bytes(stream_, 0xff);
  entered_->ones_more.fill_bytes(stream_, 0xff);
  entered_->counters.fill_bytes(stream_, 0);
}

/// Runs the step up to the launch in every edge case, from where it was kept last if that lies
/// before, and keeps what it finds.
void StepTrials::capture_cases() {
  Entered& e = *entered_;
  Rig& rig = *e.rig;
  const auto& launches = e.program->launches();
  const cu::DriverApi& driver = context_.driver();
  const Stretch buffers = rig.buffers();
  const std::size_t target = e.launches.front();
  const std::size_t begin = rig.kept_at <= target ? rig.kept_at : 0;
  rig.kept_at = 0;
  fill_scratch(0);
  for (std::size_t c = 0; c < rig.cases.size(); ++c) {
    if (begin == 0) {
      rig.memory.upload(stream_, rig.cases[c].inputs, rig.bucket.rows,
                        rig.bucket.sampled ? rig.bucket.logit_rows : 0);
    } else {
      driver.check(driver.cuMemcpyDtoDAsync_v2(buffers.at, rig.kept[c].address(), buffers.bytes,
                                               stream_.raw()),
                   "cuMemcpyDtoDAsync");
    }
    for (std::size_t i = begin; i < target; ++i) {
      cu::launch(stream_, launches[i].kernel->kernel.function(), launches[i].kernel->shape,
                 launches[i].args.data());
    }
    if (scope_.tp_size > 1 && rig.bucket.sampled && e.slot == kernels_of(rig.bucket, true).sample)
      repeat_logits(rig);
    driver.check(driver.cuMemcpyDtoDAsync_v2(rig.kept[c].address(), buffers.at, buffers.bytes,
                                             stream_.raw()),
                 "cuMemcpyDtoDAsync");
    stream_.synchronize();
    e.outputs.emplace_back(launches[target].outputs, rig.cases[c], rig.csa, rig.hca);
  }
  rig.kept_at = target;
  for (const TrialOutputs& outputs : e.outputs) {
    auto& saved = e.saved.emplace_back();
    for (const Stretch& one : outputs.kept(rig.buffers())) {
      saved.push_back({one, std::vector<std::byte>(one.bytes)});
      driver.check(
          driver.cuMemcpyDtoHAsync_v2(saved.back().bytes.data(), one.at, one.bytes, stream_.raw()),
          "cuMemcpyDtoHAsync");
    }
    stream_.synchronize();
  }
}

/// Puts this rank's logits into every rank's columns: there is nothing to gather from.
void StepTrials::repeat_logits(const Rig& rig) const {
  const cu::DriverApi& driver = context_.driver();
  const executor::StepBuffers& b = rig.memory.buffers();
  const int share = scope_.config.vocab_size / scope_.tp_size;
  const auto address = [](const float* at) { return reinterpret_cast<cu::CUdeviceptr>(at); };
  for (int part = 0; part < rig.bucket.logit_rows * scope_.tp_size; ++part) {
    const std::ptrdiff_t row = part / scope_.tp_size;
    driver.check(
        driver.cuMemcpyDtoDAsync_v2(address(b.logits + std::ptrdiff_t{part} * share),
                                    address(b.logits_share + row * share),
                                    static_cast<std::size_t>(share) * sizeof(float), stream_.raw()),
        "cuMemcpyDtoDAsync");
  }
}

void StepTrials::restore(std::size_t edge_case) const {
  const Rig& rig = *entered_->rig;
  const cu::DriverApi& driver = context_.driver();
  const Stretch buffers = rig.buffers();
  driver.check(driver.cuMemcpyDtoDAsync_v2(buffers.at, rig.kept[edge_case].address(), buffers.bytes,
                                           stream_.raw()),
               "cuMemcpyDtoDAsync");
  for (const auto& saved : entered_->saved[edge_case]) {
    driver.check(driver.cuMemcpyHtoDAsync_v2(saved.at.at, saved.bytes.data(), saved.bytes.size(),
                                             stream_.raw()),
                 "cuMemcpyHtoDAsync");
  }
}

Error StepTrials::refused(const EngineError& error) const {
  stream_.synchronize();  // throws where the context is gone
  return error.error();
}

Result<executor::ReadyKernel> StepTrials::load(const TrialKernel& kernel) {
  const std::string name = jit::describe(kernel.variant);
  const auto known = loaded_.find(name);
  if (known != loaded_.end() && known->second.cubin == kernel.cubin) return known->second.kernel;
  try {
    Loaded loaded{kernel.cubin, library_.load(entered_->slot, kernel.variant, kernel.cubin)};
    return loaded_.insert_or_assign(name, std::move(loaded)).first->second.kernel;
  } catch (const EngineError& error) {
    return Unexpected(refused(error));
  }
}

void StepTrials::launch(const executor::ReadyKernel& kernel, std::size_t index) const {
  cu::launch(stream_, kernel.kernel.function(), kernel.shape,
             entered_->program->launches()[index].args.data());
}

/// What a launch must leave as it found it is still so.
Result<void> StepTrials::check_scratch(const KernelScratch& used) const {
  for (const auto& [buffer, bytes] :
       {std::pair(&entered_->ones, used.ones), std::pair(&entered_->ones_more, used.ones_more)}) {
    std::vector<std::byte> left(static_cast<std::size_t>(bytes));
    if (left.empty()) continue;
    buffer->copy_to_host(stream_, left);
    stream_.synchronize();
    const bool whole =
        std::all_of(left.begin(), left.end(), [](std::byte b) { return b == std::byte{0xff}; });
    if (whole) continue;
    return fail(ErrorCode::cuda, "it leaves its workspace in another state than it found it");
  }
  return {};
}

Result<std::vector<KernelOutput>> StepTrials::run(const TrialKernel& kernel, std::size_t edge_case,
                                                  Poison poison) {
  const auto ready = load(kernel);
  if (!ready) return Unexpected(ready.error());
  const TrialOutputs& outputs = entered_->outputs[edge_case];
  restore(edge_case);
  fill_scratch(static_cast<unsigned char>(poison));
  outputs.poison(stream_, poison);
  stream_.synchronize();
  try {
    launch(*ready, entered_->launches.front());
  } catch (const EngineError& error) {
    return Unexpected(refused(error));
  }
  auto fetched = outputs.fetch(stream_, poison, host_);
  if (auto left = check_scratch(ready->scratch); !left) return Unexpected(left.error());
  return fetched;
}

Result<double> StepTrials::time_us(const TrialKernel& kernel) {
  const auto ready = load(kernel);
  if (!ready) return Unexpected(ready.error());
  restore(0);
  fill_scratch(0);
  stream_.synchronize();
  const auto& launches = entered_->launches;
  const auto queue = [&](const executor::ReadyKernel& one) {
    return [&](int i) { launch(one, launches[static_cast<std::size_t>(i) % launches.size()]); };
  };
  try {
    // As many for every candidate: what the default's time asks for.
    if (entered_->timed_launches == 0) {
      const int most = std::max(static_cast<int>(launches.size()), kLeastLaunches);
      const double us =
          stopwatch_(context_, stream_, kLeastLaunches, queue(library_.at(entered_->slot)));
      entered_->timed_launches = static_cast<int>(
          std::clamp<double>(std::ceil(kEnough_us / std::max(us, 1e-3)), kLeastLaunches, most));
      restore(0);
      fill_scratch(0);
      stream_.synchronize();
    }
    return stopwatch_(context_, stream_, entered_->timed_launches, queue(*ready));
  } catch (const EngineError& error) {
    return Unexpected(refused(error));
  }
}

}  // namespace ingot::trials
