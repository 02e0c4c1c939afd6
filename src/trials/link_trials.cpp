#include "src/trials/link_trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "kernel_templates/all_reduce_wide.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/executor/peer_links.hpp"
#include "src/plan/step_problems.hpp"
#include "tuner/fixed_replays.hpp"

namespace ingot::trials {
namespace {

using kernels::AllGather, kernels::AllReduce, kernels::AllReduceWide;

/// Of waiting for another rank: far longer than an exchange, and than what delays a launch.
constexpr int kLimit_ms = 2000;
/// Exchanges in one graph.
constexpr int kExchanges = 64;

enum Case : std::size_t { kLargest, kOneToken, kNoNumbers };
constexpr std::array kCaseNames{"largest", "one token", "NaN and infinity"};

std::vector<float> inputs(std::size_t count, int rank, bool has_no_numbers) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(random() % 4096) / 512.0F - 4.0F;
  if (has_no_numbers) {
    // Of one rank at a time, and of two that cancel.
    values[static_cast<std::size_t>(rank) % count] = std::numeric_limits<float>::quiet_NaN();
    values[count - 1 - static_cast<std::size_t>(rank) % count] =
        std::numeric_limits<float>::infinity();
    values[count / 2] = (rank % 2 == 0 ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
  }
  return values;
}

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  return bits;
}

/// Ranks that only give logits wait for nobody, and in a graph of gatherings would run away from
/// the one that takes them. In a step its sums keep them together; here one of a few words does,
/// behind each.
constexpr int kStepHidden = 64;
kernels::AllReduceProblem step_problem(int ranks) {
  return {.ranks = ranks, .hidden = kStepHidden, .has_sums = false, .has_values = true};
}

bool any_card_twice(const std::vector<cu::Context>& contexts) {
  std::set<int> cards;
  for (const cu::Context& context : contexts)
    cards.insert(context.device().ordinal);
  return cards.size() < contexts.size();
}

cu::DeviceBuffer on_card(const cu::Context& context, const cu::Stream& stream,
                         std::span<const std::byte> bytes) {
  auto buffer = cu::DeviceBuffer::allocate(context, std::max<std::size_t>(bytes.size(), 16));
  if (!bytes.empty()) buffer.copy_from_host(stream, bytes);
  stream.synchronize();
  return buffer;
}

}  // namespace

struct LinkTrials::Rank {
  Rank(cu::Context opened, jit::KernelStore& kernels, const ModelConfig& config,
       const std::string& arch, int tp_rank, int tp_size)
      : context(std::move(opened)),
        stream(cu::Stream::create(context)),
        links(context, stream, config, tp_rank, tp_size, kMostStepRows, kLimit_ms),
        logits(cu::DeviceBuffer::allocate(
            context,
            std::size_t{kMostLogitRows} * static_cast<std::size_t>(config.vocab_size) * 4)),
        library(context, kernels, nullptr,
                TuningScope{.device = {.name = context.device().name,
                                       .arch = arch,
                                       .sm_count = context.device().sm_count,
                                       .driver_branch = {}},
                            .tp_size = tp_size,
                            .policy = {}},
                {}) {
    stream.synchronize();
  }

  struct Inputs {
    cu::DeviceBuffer sums, values;  // of a gathering: the logits' share in `sums`
  };
  cu::Context context;
  cu::Stream stream;
  executor::PeerLinks links;
  cu::DeviceBuffer logits;
  executor::KernelLibrary library;
  executor::KernelLibrary::Slot slot = 0, step = 0;
  std::array<Inputs, 2> inputs;  // without and with NaN
  cu::DeviceBuffer out;
  std::optional<executor::ReadyKernel> kernel;
};

struct LinkTrials::Exchange {
  std::optional<kernels::AllReduceProblem> reduce;
  bool at_once = false;  // by all_reduce_wide
  std::optional<kernels::AllGatherProblem> gather;
  std::size_t inputs = 0;  // of each rank's two kinds
  std::vector<std::byte> loaded;
  std::string variant;

  int tokens() const { return reduce ? reduce->tokens : gather->rows; }
  std::size_t in_values() const {
    return reduce
               ? static_cast<std::size_t>(reduce->tokens) * static_cast<std::size_t>(reduce->hidden)
               : static_cast<std::size_t>(gather->rows) * static_cast<std::size_t>(gather->share);
  }
  std::size_t out_bytes() const {
    return reduce ? in_values() * static_cast<std::size_t>(reduce->copies) * 2
                  : in_values() * static_cast<std::size_t>(gather->ranks) * 4;
  }
};

LinkTrials::LinkTrials(std::vector<cu::Context> contexts, std::shared_ptr<jit::KernelStore> kernels,
                       const ModelConfig& config, std::string arch, int replays)
    : replays_(replays),
      shares_card_(any_card_twice(contexts)),
      ranks_(contexts.size()),
      threads_(static_cast<int>(contexts.size()), [this] {
        for (auto& rank : ranks_)
          if (rank) rank->links.stop();
      }) {
  // One after the other: nothing of what a rank makes may wait for a card that another keeps busy.
  for (std::size_t r = 0; r < contexts.size(); ++r) {
    contexts[r].make_current();
    ranks_[r] = std::make_unique<Rank>(std::move(contexts[r]), *kernels, config, arch,
                                       static_cast<int>(r), static_cast<int>(contexts.size()));
  }
  std::vector<executor::PeerLinks*> links;
  std::vector<float*> logits;
  for (auto& rank : ranks_) {
    links.push_back(&rank->links);
    logits.push_back(rank->logits.as<float>());
  }
  for (auto& rank : ranks_) {
    rank->context.make_current();
    rank->links.connect(links, logits);
  }
  threads_.run([&](int rank) { ranks_[static_cast<std::size_t>(rank)]->context.make_current(); });
}

LinkTrials::~LinkTrials() {
  threads_.run_last([&](int rank) {
    try {
      ranks_[static_cast<std::size_t>(rank)]->stream.synchronize();
    } catch (const EngineError&) {
      // The context is gone; what is left is to free what the driver still lets us free.
    }
  });
  for (auto& rank : ranks_) {
    try {
      rank->context.make_current();
    } catch (const EngineError&) {
    }
    rank.reset();
  }
}

Result<std::vector<std::string>> LinkTrials::enter(const std::vector<std::string>& families,
                                                   const std::vector<ProblemField>& problem) {
  auto exchange = std::make_unique<Exchange>();
  exchange->at_once = families == std::vector{std::string(AllReduceWide::kStem)};
  if (exchange->at_once || families == std::vector{std::string(AllReduce::kStem)})
    exchange->reduce = problem_from<kernels::AllReduceProblem>(problem);
  if (families == std::vector{std::string(AllGather::kStem)})
    exchange->gather = problem_from<kernels::AllGatherProblem>(problem);
  const auto fits = [&](const auto& of) { return of && of->ranks == size(); };
  if (!(fits(exchange->reduce) && !exchange->reduce->one_shot) && !fits(exchange->gather)) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} ranks have no exchange for {}", size(), describe(problem)));
  }
  for (int r = 0; r < size(); ++r) {
    Rank& rank = *ranks_[static_cast<std::size_t>(r)];
    rank.context.make_current();
    rank.kernel.reset();
    rank.slot = exchange->at_once  ? rank.library.want<AllReduceWide>(*exchange->reduce)
                : exchange->reduce ? rank.library.want<AllReduce>(*exchange->reduce)
                                   : rank.library.want<AllGather>(*exchange->gather);
    for (std::size_t kind = 0; kind < rank.inputs.size(); ++kind) {
      const auto values = inputs(exchange->in_values(), r, kind == 1);
      rank.inputs[kind].sums = on_card(rank.context, rank.stream, std::as_bytes(std::span(values)));
      const auto halves = bf16_of(values);
      rank.inputs[kind].values =
          on_card(rank.context, rank.stream, std::as_bytes(std::span(halves)));
    }
    rank.out = cu::DeviceBuffer::allocate(
        rank.context, std::max<std::size_t>(exchange->out_bytes(), 2 * kStepHidden));
    if (exchange->gather) {
      rank.step = rank.library.want<AllReduce>(step_problem(size()));
      rank.library.prepare(1);
    }
  }
  ranks_.front()->context.make_current();
  exchange_ = std::move(exchange);
  return std::vector<std::string>(kCaseNames.begin(), kCaseNames.end());
}

/// Loads on every rank before any of them launches.
void LinkTrials::load(const TrialKernel& kernel) {
  const std::string variant = jit::describe(kernel.variant);
  if (exchange_->variant == variant && exchange_->loaded == kernel.cubin) return;
  for (auto& rank : ranks_) {
    rank->context.make_current();
    rank->kernel = rank->library.load(rank->slot, kernel.variant, kernel.cubin);
  }
  ranks_.front()->context.make_current();
  exchange_->variant = variant;
  exchange_->loaded = kernel.cubin;
}

void LinkTrials::launch(Rank& rank, int tokens) const {
  const Rank::Inputs& in = rank.inputs[exchange_->inputs];
  if (exchange_->at_once) {
    kernels::AllReduceWideArgs args = rank.links.wide_reduce_args();
    args.sums = exchange_->reduce->has_sums ? in.sums.as<float>() : nullptr;
    args.values = exchange_->reduce->has_values ? in.values.as<kernels::bf16>() : nullptr;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      args.out[r] = ranks_[r]->out.as<kernels::bf16>();
    args.tokens = tokens;
    args.hidden = exchange_->reduce->hidden;
    queue(rank, *rank.kernel, &args);
    return;
  }
  if (exchange_->reduce) {
    kernels::AllReduceArgs args = rank.links.reduce_args();
    args.sums = exchange_->reduce->has_sums ? in.sums.as<float>() : nullptr;
    args.values = exchange_->reduce->has_values ? in.values.as<kernels::bf16>() : nullptr;
    args.out = rank.out.as<kernels::bf16>();
    args.tokens = tokens;
    args.hidden = exchange_->reduce->hidden;
    queue(rank, *rank.kernel, &args);
    return;
  }
  kernels::AllGatherArgs args = rank.links.gather_args();
  args.from = in.sums.as<float>();
  args.rows = tokens;
  args.share = exchange_->gather->share;
  queue(rank, *rank.kernel, &args);
}

void LinkTrials::queue(const Rank& rank, const executor::ReadyKernel& kernel,
                       const void* args) const {
  cu::LaunchShape shape = kernel.shape;
  // A launch that may begin early lies on the card until its turn comes, and lets the one behind it
  // begin, too: those of one rank, which wait for another, would take the room that the other's
  // need on the same card.
  shape.programmatic = shape.programmatic && !shares_card_;
  cu::launch(rank.stream, kernel.kernel.function(), shape, args);
}

void LinkTrials::keep_in_step(Rank& rank) const {
  kernels::AllReduceArgs args = rank.links.reduce_args();
  args.values = rank.inputs[0].values.as<kernels::bf16>();
  args.out = rank.out.as<kernels::bf16>();
  args.tokens = 1;
  args.hidden = kStepHidden;
  queue(rank, rank.library.at(rank.step), &args);
}

Result<std::vector<KernelOutput>> LinkTrials::run(const TrialKernel& kernel, std::size_t edge_case,
                                                  Poison poison) {
  load(kernel);
  exchange_->inputs = edge_case == kNoNumbers ? 1 : 0;
  const int tokens = edge_case == kOneToken ? 1 : exchange_->tokens();
  std::vector<KernelOutput> outputs(exchange_->reduce ? ranks_.size()
                                                      : 1);  // rank 0 has the logits
  threads_.run([&](int r) {
    Rank& rank = *ranks_[static_cast<std::size_t>(r)];
    const cu::DeviceBuffer& out = exchange_->reduce ? rank.out : rank.logits;
    out.fill_bytes(rank.stream, static_cast<unsigned char>(poison));
    rank.stream.synchronize();
    threads_.meet();
    launch(rank, tokens);
    rank.stream.synchronize();
    rank.links.throw_if_stopped();
    threads_.meet();  // the others write into this rank's memory
    if (static_cast<std::size_t>(r) >= outputs.size()) return;
    KernelOutput& output = outputs[static_cast<std::size_t>(r)];
    output.name = fmt::format("out of rank {}", r);
    // Everyone adds in the order of ranks: the same bits whatever the parameters are.
    output.dtype = exchange_->reduce ? Dtype::bf16 : Dtype::f32;
    output.bytes.resize(exchange_->out_bytes());
    out.copy_to_host(rank.stream, output.bytes);
    rank.stream.synchronize();
  });
  return outputs;
}

Result<double> LinkTrials::time_us(const TrialKernel& kernel) {
  load(kernel);
  exchange_->inputs = 0;
  std::vector<double> times(ranks_.size());
  threads_.run([&](int r) {
    Rank& rank = *ranks_[static_cast<std::size_t>(r)];
    const cu::Graph graph = record_nodes(rank.stream, kExchanges, [&](int) {
      launch(rank, exchange_->tokens());
      if (exchange_->gather) keep_in_step(rank);
    });
    // All ranks replay as often, and make nothing meanwhile.
    FixedReplays replays(rank.context, rank.stream, graph, replays_);
    threads_.meet();
    const Timing timing = replays.run();
    rank.links.throw_if_stopped();
    times[static_cast<std::size_t>(r)] = timing.median_us * timing.nodes / kExchanges;
    threads_.meet();
  });
  return *std::max_element(times.begin(), times.end());
}

}  // namespace ingot::trials
