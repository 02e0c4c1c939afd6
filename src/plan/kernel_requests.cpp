#include "src/plan/kernel_requests.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel_templates/rms_norm.space.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {
namespace {

/// Collects variant sets, each once.
class Requests {
 public:
  explicit Requests(const cu::DeviceLimits& device) : device_(device) {}

  template <class Family>
  void add(const typename Family::Problem& problem) {
    if (!Family::runs_on(device_)) return;
    kernels::VariantSet set = kernels::variants_of<Family>(problem, device_);
    const bool known = std::any_of(sets_.begin(), sets_.end(), [&](const auto& other) {
      return other.candidates == set.candidates;
    });
    if (!known) sets_.push_back(std::move(set));
  }

  std::vector<kernels::VariantSet> take() { return std::move(sets_); }

 private:
  const cu::DeviceLimits& device_;
  std::vector<kernels::VariantSet> sets_;
};

}  // namespace

Result<std::vector<kernels::VariantSet>> kernel_requests(const ModelConfig& config,
                                                         const PlanScope& scope,
                                                         const cu::DeviceLimits& device) {
  const std::vector<int> valid = valid_tp_sizes(config);
  if (std::find(valid.begin(), valid.end(), scope.tp_size) == valid.end()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the model cannot be split over {} ranks; valid TP sizes: {}",
                            scope.tp_size, fmt::join(valid, ", ")));
  }
  Requests requests(device);
  // Norms: before each sublayer and at the end (hidden), of the query's low-rank part, of the KV
  // latent and compressed entries (head_dim), of the indexer's keys. None of them is split.
  for (const int width :
       {config.hidden_size, config.q_lora_rank, config.head_dim, config.index_head_dim}) {
    for (const int rows : scope.batch_buckets) {
      requests.add<kernels::RmsNorm>({.hidden = width, .rows = rows});
    }
  }
  return requests.take();
}

}  // namespace ingot
