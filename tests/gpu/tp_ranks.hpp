#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernel_templates/all_reduce.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "src/executor/peer_links.hpp"
#include "src/executor/rank_threads.hpp"
#include "src/plan/step_bucket.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// Two ranks with what an all-reduce takes, on two GPUs or on one.
class TwoRanks {
 public:
  static constexpr std::int64_t kMostElements = std::int64_t{2} << 20;  // 8 MiB of fp32

  struct Rank {
    explicit Rank(cu::Context opened, const ModelConfig& config, int tp_rank)
        : context(std::move(opened)),
          stream(cu::Stream::create(context)),
          links(context, stream, config, tp_rank, 2, 3000) {
      stream.synchronize();
    }
    cu::Context context;
    cu::Stream stream;
    executor::PeerLinks links;
    std::vector<jit::Kernel> kernels;
    std::vector<cu::DeviceBuffer> buffers;
  };

  /// @param gpus  1 or 2; null, after skip() said why, where there are fewer
  static std::unique_ptr<TwoRanks> open_or_skip(int gpus) {
    auto driver = driver_or_skip(gpus);
    if (!driver) return nullptr;
    return std::unique_ptr<TwoRanks>(new TwoRanks(driver, gpus));
  }
  ~TwoRanks() {
    threads_.run_last([&](int rank) { ranks_[static_cast<std::size_t>(rank)].reset(); });
  }

  void run(const std::function<void(Rank&, int rank)>& body) {
    threads_.run([&](int rank) { body(*ranks_[static_cast<std::size_t>(rank)], rank); });
  }
  void meet() { threads_.meet(); }
  cu::DeviceLimits limits() const { return cu::limits_of(ranks_[0]->context.device()); }
  /// Loads the default variants of these problems on both ranks, in order.
  std::vector<kernels::AllReduceParams> load(
      const std::vector<kernels::AllReduceProblem>& problems) {
    std::vector<kernels::AllReduceParams> params;
    std::vector<jit::Variant> variants;
    for (const auto& problem : problems) {
      params.push_back(kernels::AllReduce::space(problem, limits()).default_candidate());
      variants.push_back(variant_of<kernels::AllReduce>(params.back()));
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
  TwoRanks(const std::shared_ptr<const cu::DriverApi>& driver, int gpus)
      : ranks_(2), threads_(2, [this] {
          for (auto& rank : ranks_)
            if (rank) rank->links.stop();
        }) {
    ModelConfig config;
    config.hidden_size = static_cast<int>(kMostElements / kMostSliceRows);
    threads_.run([&](int rank) {
      ranks_[static_cast<std::size_t>(rank)] =
          std::make_unique<Rank>(cu::Context::retain(driver, gpus == 2 ? rank : 0), config, rank);
    });
    executor::PeerLinks* links[] = {&ranks_[0]->links, &ranks_[1]->links};
    float* logits[] = {nullptr, nullptr};
    run([&](Rank& rank, int) { rank.links.connect(links, logits); });
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  executor::RankThreads threads_;
};

}  // namespace ingot::test
