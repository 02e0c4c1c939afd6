#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernel_templates/all_reduce.space.hpp"
#include "kernel_templates/all_reduce_wide.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "src/executor/peer_links.hpp"
#include "src/executor/rank_threads.hpp"
#include "src/plan/step_bucket.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// Ranks with what an all-reduce takes, on a GPU each or all on one.
class PeerRanks {
 public:
  static constexpr std::int64_t kMostElements = std::int64_t{2} << 20;  // 8 MiB of fp32

  struct Rank {
    Rank(cu::Context opened, const ModelConfig& config, int tp_rank, int tp_size)
        : context(std::move(opened)),
          stream(cu::Stream::create(context)),
          links(context, stream, config, tp_rank, tp_size, kMostStepRows, 3000) {
      stream.synchronize();
    }
    cu::Context context;
    cu::Stream stream;
    executor::PeerLinks links;
    std::vector<jit::Kernel> kernels;
    std::vector<cu::DeviceBuffer> buffers;
  };

  /// @param gpus  1, or as many as ranks; null, after skip() said why, where there are fewer
  static std::unique_ptr<PeerRanks> open_or_skip(int ranks, int gpus) {
    auto driver = driver_or_skip(gpus);
    if (!driver) return nullptr;
    return std::unique_ptr<PeerRanks>(new PeerRanks(driver, ranks, gpus));
  }
  ~PeerRanks() {
    threads_.run_last([&](int rank) { ranks_[static_cast<std::size_t>(rank)].reset(); });
  }

  void run(const std::function<void(Rank&, int rank)>& body) {
    threads_.run([&](int rank) { body(*ranks_[static_cast<std::size_t>(rank)], rank); });
  }
  void meet() { threads_.meet(); }
  const Rank& of(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  cu::DeviceLimits limits() const { return cu::limits_of(ranks_[0]->context.device()); }
  int count() const { return static_cast<int>(ranks_.size()); }
  /// Loads the default variants of these problems on all ranks, in order.
  template <class Family = kernels::AllReduce>
  std::vector<typename Family::Params> load(
      const std::vector<kernels::AllReduceProblem>& problems) {
    std::vector<typename Family::Params> params;
    std::vector<jit::Variant> variants;
    for (const auto& problem : problems) {
      params.push_back(Family::space(problem, limits()).default_candidate());
      variants.push_back(variant_of<Family>(params.back()));
    }
    load(variants);
    return params;
  }
  void load(const std::vector<jit::Variant>& variants) {
    for (auto& rank : ranks_) {
      rank->context.make_current();
      rank->kernels = load_variants(rank->context, variants);
    }
    ranks_[0]->context.make_current();
  }

 private:
  PeerRanks(const std::shared_ptr<const cu::DriverApi>& driver, int ranks, int gpus)
      : ranks_(static_cast<std::size_t>(ranks)), threads_(ranks, [this] {
          for (auto& rank : ranks_)
            if (rank) rank->links.stop();
        }) {
    ModelConfig config;
    config.hidden_size = static_cast<int>(kMostElements / kMostSliceRows);
    threads_.run([&](int rank) {
      ranks_[static_cast<std::size_t>(rank)] = std::make_unique<Rank>(
          cu::Context::retain(driver, gpus > 1 ? rank : 0), config, rank, ranks);
    });
    std::vector<executor::PeerLinks*> links;
    for (auto& rank : ranks_)
      links.push_back(&rank->links);
    std::vector<float*> logits(links.size());
    run([&](Rank& rank, int) { rank.links.connect(links, logits); });
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  executor::RankThreads threads_;
};

}  // namespace ingot::test
