#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "kernel_templates/all_gather.space.hpp"
#include "kernel_templates/all_reduce.space.hpp"
#include "kernel_templates/all_reduce_wide.space.hpp"
#include "kernel_templates/family.hpp"
#include "runtime/jit/kernel.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "src/executor/peer_links.hpp"
#include "src/executor/rank_threads.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/reference/numerics.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// Ranks that share the emulated card, each with a thread.
class Ranks {
 public:
  explicit Ranks(int size)
      : size_(size), card_(test::emulated_card(std::uint64_t{1} << 30, 4)), threads_(size, [this] {
          for (auto& rank : ranks_)
            rank->links.stop();
        }) {
    config_.hidden_size = 64;
    config_.vocab_size = 32 * size;
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Rank>(*this, rank));
    std::vector<executor::PeerLinks*> links;
    std::vector<float*> logits;
    for (auto& rank : ranks_) {
      links.push_back(&rank->links);
      logits.push_back(rank->logits.as<float>());
    }
    for (auto& rank : ranks_)
      rank->links.connect(links, logits);
  }

  struct Rank {
    Rank(const Ranks& all, int tp_rank)
        : context(cu::Context::retain(all.card_->driver(), 0)),
          stream(cu::Stream::create(context)),
          links(context, stream, all.config_, tp_rank, all.size_, kMostStepRows, 600'000),
          logits(cu::DeviceBuffer::allocate(context, 4096 * 4)) {
      stream.synchronize();
    }
    template <class T>
    T* place(const std::vector<T>& values) {
      buffers.push_back(cu::DeviceBuffer::allocate(context, values.size() * sizeof(T)));
      buffers.back().copy_from_host(stream, std::as_bytes(std::span(values)));
      stream.synchronize();
      return buffers.back().as<T>();
    }
    template <class T>
    std::vector<T> fetch(const cu::DeviceBuffer& from, std::size_t count) {
      std::vector<T> values(count);
      from.copy_to_host(stream, std::as_writable_bytes(std::span(values)));
      stream.synchronize();
      return values;
    }
    cu::Context context;
    cu::Stream stream;
    executor::PeerLinks links;
    cu::DeviceBuffer logits;
    std::vector<cu::DeviceBuffer> buffers;
  };

  template <class Family>
  jit::Kernel load(const typename Family::Params& params) {
    const jit::Variant variant{std::string(Family::kStem), jit::param_values(params)};
    const auto entry =
        value_or_throw(store_.get({.variant = variant, .arch = "sm_90a", .allow_spills = true}));
    return jit::Kernel::load(ranks_[0]->context, entry->kernel.cubin, variant.family);
  }
  void run(const std::function<void(Rank&, int rank)>& body) {
    threads_.run([&](int rank) {
      ranks_[static_cast<std::size_t>(rank)]->context.make_current();
      body(*ranks_[static_cast<std::size_t>(rank)], rank);
    });
  }
  cu::DeviceLimits limits() const { return cu::limits_of(ranks_[0]->context.device()); }

 private:
  static std::filesystem::path source_root() {
    const char* root = std::getenv("INGOT_TEST_SOURCE");
    return root != nullptr ? root : ".";
  }

  int size_;
  ModelConfig config_;
  std::unique_ptr<test::HostCard> card_;
  test::TempDir folder_;
  jit::KernelStore store_{
      kernels::embedded_templates(),
      std::make_shared<test::EmulatorCompiler>(source_root(), folder_.path()),
      jit::KernelStore::Options{.directories = {folder_.path()}, .frozen = false}};
  std::vector<std::unique_ptr<Rank>> ranks_;
  executor::RankThreads threads_;
};

/// Small halves: bf16 has them exactly, and sums need rounding.
float value_of(int rank, int round, int i) {
  const auto mixed = (static_cast<unsigned>(i) * 8U + static_cast<unsigned>(rank)) * 0x9e3779b9U +
                     static_cast<unsigned>(round) * 0x85ebca6bU;
  return static_cast<float>(static_cast<int>(mixed >> 24) - 128) * 0.5F;
}

/// What a rank says in an all-reduce: an fp32 part and a bf16 part.
struct Summand {
  std::vector<float> sums;
  std::vector<kernels::bf16> values;
};
Summand summand_of(int rank, int round, int elements) {
  Summand made;
  for (int i = 0; i < elements; ++i) {
    const float value = value_of(rank, round, i);
    made.sums.push_back(value * 0.125F);
    made.values.push_back({.bits = reference::bf16_bits(value)});
  }
  return made;
}

/// Throws where one of the sums is not that of all ranks' summands, to the bit.
void require_sums(const std::vector<kernels::bf16>& got, const kernels::AllReduceProblem& problem,
                  int round) {
  const int hidden = problem.hidden;
  for (int i = 0; i < problem.tokens * hidden; ++i) {
    float total = 0;
    for (int rank = 0; rank < problem.ranks; ++rank) {
      const float value = value_of(rank, round, i);
      total += (problem.has_sums ? value * 0.125F : 0.0F) + (problem.has_values ? value : 0.0F);
    }
    for (int c = 0; c < problem.copies; ++c) {
      const int at = (i / hidden * problem.copies + c) * hidden + i % hidden;
      if (got[static_cast<std::size_t>(at)].bits != reference::bf16_bits(total))
        throw std::runtime_error("a sum is wrong");
    }
  }
}

}  // namespace

TEST_CASE("ranks add to the bit, in one shot and in two, again and again", "[cpu][executor]") {
  const auto [size, shots, sums, copies] = GENERATE(table<int, int, bool, int>({{2, 1, true, 1},
                                                                                {2, 2, true, 1},
                                                                                {2, 1, false, 4},
                                                                                {4, 2, false, 1},
                                                                                {8, 1, true, 1},
                                                                                {8, 2, true, 4}}));
  CAPTURE(size, shots, sums, copies);
  Ranks ranks(size);
  constexpr int kHidden = 72;
  kernels::AllReduceProblem problem{
      .ranks = size, .hidden = kHidden, .has_sums = sums, .has_values = true, .copies = copies};
  auto params = kernels::AllReduce::space(problem, ranks.limits()).default_candidate();
  params.SHOTS = shots;
  params.THREADS = 128;
  params.BLOCKS = 2;  // so that blocks go around
  const jit::Kernel kernel = ranks.load<kernels::AllReduce>(params);
  ranks.run([&, copies = copies](Ranks::Rank& rank, int r) {
    for (int round = 0; round < 5; ++round) {
      auto one = problem;
      one.tokens = round % 2 == 0 ? 23 : 1;  // launches of different sizes by turns
      const Summand own = summand_of(r, round, one.tokens * kHidden);
      const std::size_t results = own.sums.size() * static_cast<std::size_t>(copies);
      auto args = rank.links.reduce_args();
      args.sums = rank.place(own.sums);
      args.values = rank.place(own.values);
      args.out = rank.place(std::vector<kernels::bf16>(results));
      args.tokens = one.tokens;
      args.hidden = kHidden;
      kernel.launch(rank.stream, kernels::AllReduce::launch_shape(one, params), args);
      require_sums(rank.fetch<kernels::bf16>(rank.buffers.back(), results), one, round);
      rank.links.throw_if_stopped();
    }
  });
  SUCCEED();
}

TEST_CASE("ranks add many tokens at once to the bit, also where a sum takes its summand's place",
          "[cpu][executor]") {
  const auto [size, sums, values, copies] =
      GENERATE(table<int, bool, bool, int>({{2, true, true, 1},
                                            {2, false, true, 4},
                                            {4, true, false, 1},
                                            {8, true, true, 4},
                                            {8, false, true, 1}}));
  CAPTURE(size, sums, values, copies);
  Ranks ranks(size);
  constexpr int kHidden = 72;
  kernels::AllReduceProblem problem{
      .ranks = size, .hidden = kHidden, .has_sums = sums, .has_values = values, .copies = copies};
  auto params = kernels::AllReduceWide::space(problem, ranks.limits()).default_candidate();
  params.THREADS = 128;
  params.BLOCKS = 2;  // so that blocks go around
  const jit::Kernel kernel = ranks.load<kernels::AllReduceWide>(params);
  constexpr int kMostTokens = 61;
  constexpr auto kMost = static_cast<std::size_t>(kMostTokens * kHidden);
  std::vector<kernels::bf16*> outs(static_cast<std::size_t>(size));
  ranks.run([&, copies = copies](Ranks::Rank& rank, int r) {
    outs[static_cast<std::size_t>(r)] =
        rank.place(std::vector<kernels::bf16>(kMost * static_cast<std::size_t>(copies)));
  });
  ranks.run([&, copies = copies](Ranks::Rank& rank, int r) {
    for (int round = 0; round < 5; ++round) {
      auto one = problem;
      one.tokens = round % 2 == 0 ? kMostTokens : 1;  // launches of different sizes by turns
      const Summand own = summand_of(r, round, one.tokens * kHidden);
      auto args = rank.links.wide_reduce_args();
      args.sums = rank.place(own.sums);
      args.values = rank.place(own.values);
      std::copy(outs.begin(), outs.end(), args.out);
      if (copies == 1) {  // in the place of the values
        rank.buffers.front().copy_from_host(rank.stream, std::as_bytes(std::span(own.values)));
        rank.stream.synchronize();
        args.values = outs[static_cast<std::size_t>(r)];
      }
      args.tokens = one.tokens;
      args.hidden = kHidden;
      kernel.launch(rank.stream, kernels::AllReduceWide::launch_shape(one, params), args);
      const std::size_t results = own.sums.size() * static_cast<std::size_t>(copies);
      require_sums(rank.fetch<kernels::bf16>(rank.buffers.front(), results), one, round);
      rank.links.throw_if_stopped();
    }
  });
  SUCCEED();
}

TEST_CASE("ranks' logits lie side by side on the first", "[cpu][executor]") {
  constexpr int kRanks = 4, kRows = 5, kShare = 32;
  Ranks ranks(kRanks);
  const kernels::AllGatherProblem problem{.ranks = kRanks, .share = kShare, .rows = kRows};
  auto params = kernels::AllGather::space(problem, ranks.limits()).default_candidate();
  params.THREADS = 128;
  params.BLOCKS = 2;
  const jit::Kernel kernel = ranks.load<kernels::AllGather>(params);
  std::vector<float> got;
  ranks.run([&](Ranks::Rank& rank, int r) {
    std::vector<float> share;
    for (int i = 0; i < kRows * kShare; ++i)
      share.push_back(value_of(r, 0, i));
    auto args = rank.links.gather_args();
    args.from = rank.place(share);
    args.rows = kRows;
    args.share = kShare;
    kernel.launch(rank.stream, kernels::AllGather::launch_shape(problem, params), args);
    rank.links.throw_if_stopped();
    if (r == 0) got = rank.fetch<float>(rank.logits, kRanks * kRows * kShare);
  });
  for (int row = 0; row < kRows; ++row) {
    for (int r = 0; r < kRanks; ++r) {
      for (int i = 0; i < kShare; ++i)
        REQUIRE(got[static_cast<std::size_t>((row * kRanks + r) * kShare + i)] ==
                value_of(r, 0, row * kShare + i));
    }
  }
}
