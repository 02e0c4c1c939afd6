#include "src/trials/tuning_plan.hpp"

#include <algorithm>

#include "kernel_templates/family.hpp"
#include "src/plan/step_kernels.hpp"

namespace ingot::trials {
namespace {

/// Collects requests, each once.
class Requests {
 public:
  using Slot = StepKernels::Slot;
  Requests(const cu::DeviceLimits& device, const Overrides& overrides)
      : device_(device), overrides_(overrides) {}

  template <class First, class... Others>
  Slot want(const typename First::Problem& problem) {
    const std::vector<ProblemField> fields = problem_fields(problem);
    const std::string families = (std::string(First::kStem) + ... + std::string(Others::kStem));
    for (Slot slot = 0; slot < requests_.size(); ++slot)
      if (requests_[slot].problem == fields && families_[slot] == families) return slot;
    auto sets = kernels::competing<First, Others...>(problem, device_);
    if (sets.empty()) {
      throw EngineError(ErrorCode::unsupported,
                        "planning what to tune: " + std::string(First::kStem) +
                            " has no variant for " + describe(fields));
    }
    requests_.push_back(kernels::tuning_request_of(problem, sets));
    families_.push_back(families);
    return requests_.size() - 1;
  }

  const cu::DeviceLimits& limits() const { return device_; }
  bool pins(std::string_view family) const { return overrides_.pins_family(family); }
  bool disables(std::string_view family) const { return overrides_.disables(family); }
  std::vector<TuningRequest>& requests() { return requests_; }

 private:
  const cu::DeviceLimits& device_;
  const Overrides& overrides_;
  std::vector<TuningRequest> requests_;
  std::vector<std::string> families_;
};

double product(double a, double b, double c = 1) {
  return a * b * c;
}

/// About what the launches of a step cost, by slot: bytes that are read at the rate of memory, and
/// what a launch costs whatever it does. Only the order of the requests depends on it.
class StepCosts {
 public:
  StepCosts(const ModelConfig& config, int tp, const StepBucket& bucket, const StepKernels& k)
      : config_(config) {
    const double rows = bucket.rows, hidden = config.hidden_size;
    const double inter = config.moe_intermediate_size / tp;
    const double heads = static_cast<double>(config.num_heads) / tp * config.head_dim;
    const double o_dims = static_cast<double>(config.o_groups) * config.o_lora_rank / tp;
    const int all = config.num_layers;
    int csa = 0, hca = 0;
    for (int layer = 0; layer < all; ++layer) {
      csa += config.layer_kind(layer) == LayerKind::csa ? 1 : 0;
      hca += config.layer_kind(layer) == LayerKind::hca ? 1 : 0;
    }
    const int swa = all - csa - hca;
    const double streams = product(2 * config.hc_mult, hidden, 2 * rows);
    add(k.hc_between, 2 * all, product(24 * 4, config.hc_mult * hidden) + streams);
    add(k.wq_a_wkv, all, product(config.q_lora_rank + config.head_dim, hidden));
    add(k.q_norm_rope, all, product(4, heads, rows));
    add(k.kv_append, all, 0);
    if (swa + hca > 0) add(k.wq_b, swa + hca, product(heads, config.q_lora_rank));
    const double window = product(config.sliding_window, 584, rows);
    if (swa > 0) add(k.swa_attention, swa, window + product(4, heads, rows));
    if (csa > 0) {
      const double index_dims = static_cast<double>(config.index_heads) * config.index_head_dim;
      add(k.wq_b_indexer, csa, product(heads + index_dims, config.q_lora_rank));
      add(k.csa_linear, csa,
          product(config.index_heads + 4 * config.head_dim + 4 * config.index_head_dim, hidden, 2));
      add(k.csa_compress, csa, 0);
      add(k.index_compress, csa, 0);
      add(k.index_queries, csa, 0);
      const double entries = static_cast<double>(bucket.context) / 4;
      add(k.index_scores, csa, product(entries, 68, bucket.sequences));
      add(k.index_topk, csa, product(entries, 4, rows));
      add(k.csa_attention, csa,
          window + product(std::min<double>(config.index_topk, entries), 584, rows) +
              product(4, heads, rows));
    }
    if (hca > 0) {
      add(k.hca_linear, hca, product(2 * config.head_dim, hidden, 2));
      add(k.hca_compress, hca, 0);
      add(k.hca_attention, hca,
          window + product(static_cast<double>(bucket.context) / 128, 584, rows) +
              product(4, heads, rows));
    }
    add(k.wo_a, all,
        product(o_dims, static_cast<double>(config.num_heads) * config.head_dim /
                            std::max(config.o_groups, 1)));
    add(k.wo_b, all, product(hidden, o_dims));
    const double gate = product(config.num_experts, hidden, 2);
    const double shared = product(3 * inter, hidden) + gate;
    const int hashing = config.num_hash_layers, scoring = all - hashing;
    if (scoring > 0) {
      if (k.shared_with_router) {
        add(k.shared_router, scoring, shared);
      } else {
        add(k.router, scoring, gate);
      }
    }
    if (hashing > 0) {
      if (k.shared_with_router) {
        add(k.hash_shared_router, hashing, shared);
      } else {
        add(k.hash_router, hashing, gate);
      }
    }
    const double pairs = product(config.experts_per_token, rows);
    const double read = std::min<double>(config.num_experts, pairs);
    if (k.grouped) {
      add(k.expert_order, all, 0);
      add(k.expert_gather, all, product(2, pairs, hidden));
      add(k.experts_up, all, product(read, 2 * inter, hidden * 0.53) + product(pairs, hidden));
      add(k.experts_down, all, product(read, inter, hidden * 0.53) + product(2, pairs, hidden));
      add(k.expert_join, all, product(2, pairs, hidden));
    } else {
      add(k.experts, all, product(read, 3 * inter, hidden * 0.53));
    }
    if (bucket.wide()) add(k.kv_keep, all, 0);
    if (!k.shared_with_router) {
      add(k.shared_up, all, product(2 * inter, hidden));
      add(k.shared_activation, all, 0);
      add(k.shared_down, all, product(inter, hidden));
    }
    if (tp == 1) add(k.expert_sum, all, 0);
    if (bucket.logit_rows > 0)
      add(k.head, 1, product(static_cast<double>(config.vocab_size) / tp, hidden, 2));
    if (bucket.rows > kMostGateTokens) add(k.gate, all, gate);
    if (bucket.rows > kMostBf16InputTokens) {
      add(k.q_quant, all, 0);
      add(k.o_quant, all, 0);
    }
    // Some ten times over the logits, most of them from L2.
    if (bucket.sampled) add(k.sample, 1, product(4, config.vocab_size, 4.0 * bucket.logit_rows));
    for (const StepKernels::Slot slot : k.all)
      if (launches(slot) == 0) add(slot, 1, 0);
  }

  double us(StepKernels::Slot slot) const { return slot < us_.size() ? us_[slot] : 0; }
  int launches(StepKernels::Slot slot) const {
    return slot < launches_.size() ? launches_[slot] : 0;
  }

 private:
  void add(StepKernels::Slot slot, int launches, double bytes) {
    constexpr double kLaunch_us = 3, kBytesPerUs = 4e6;
    if (slot >= us_.size()) {
      us_.resize(slot + 1);
      launches_.resize(slot + 1);
    }
    launches_[slot] += launches;
    us_[slot] += launches * (kLaunch_us + bytes / kBytesPerUs);
  }

  const ModelConfig& config_;
  std::vector<double> us_;
  std::vector<int> launches_;
};

}  // namespace

std::vector<StepBucket> deployed_buckets(const std::vector<int>& batches,
                                         const std::vector<int>& chunks,
                                         const std::vector<std::int64_t>& contexts, bool sampled) {
  std::vector<StepBucket> buckets;
  const auto decode = [&](int batch) {
    if (batch > kMostNarrowRows) return;
    for (const std::int64_t context : contexts) {
      buckets.push_back({.rows = batch,
                         .sequences = batch,
                         .sequence_rows = 1,
                         .logit_rows = batch,
                         .context = context,
                         .sampled = sampled});
    }
  };
  if (!batches.empty()) decode(batches.front());
  const auto read = [&](int chunk, std::int64_t context) {
    buckets.push_back({.rows = chunk,
                       .sequences = 1,
                       .sequence_rows = chunk,
                       .logit_rows = 1,
                       .context = std::max<std::int64_t>(context, chunk),
                       .sampled = sampled});
  };
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    if (*chunk <= 1 || *chunk > kMostNarrowRows) continue;
    for (const std::int64_t context : contexts)
      read(*chunk, context);
  }
  for (std::size_t i = 1; i < batches.size(); ++i)
    decode(batches[i]);
  // Trials of wide steps take the longest. Prompts begin with no context, and what depends on it
  // is a tenth of such a step.
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend() && !contexts.empty(); ++chunk)
    if (*chunk > kMostNarrowRows) read(*chunk, contexts.front());
  return buckets;
}

Result<TuningPlan> tuning_plan(const ModelConfig& config, int tp_size,
                               const std::vector<StepBucket>& buckets,
                               const cu::DeviceLimits& device, const Overrides& overrides) {
  try {
    Requests requests(device, overrides);
    std::vector<double> share;               // by slot, of the step in which it has most
    std::vector<std::vector<int>> launches;  // by bucket and slot
    double weight = 1;                       // of a bucket: 1, 1/2, 1/3 …
    for (const StepBucket& bucket : buckets) {
      const StepKernels kernels =
          StepKernels::want(requests, config, step_problems(config, tp_size, bucket));
      const StepCosts costs(config, tp_size, bucket, kernels);
      double step_us = 0;
      for (const StepKernels::Slot slot : kernels.all)
        step_us += costs.us(slot);
      share.resize(requests.requests().size());
      auto& counts = launches.emplace_back(share.size());
      for (const StepKernels::Slot slot : kernels.all) {
        share[slot] = std::max(share[slot], weight * costs.us(slot) / step_us);
        counts[slot] = costs.launches(slot);
      }
      weight = 1 / (1 / weight + 1);
    }
    std::vector<std::size_t> order(share.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    const auto has_choice = [&](std::size_t i) {
      return requests.requests()[i].candidates.size() > 1;
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (has_choice(a) != has_choice(b)) return has_choice(a);
      return share[a] > share[b];
    });
    TuningPlan plan;
    for (const StepBucket& bucket : buckets)
      plan.steps.push_back({.bucket = bucket, .launches = {}});
    for (const std::size_t i : order) {
      TuningRequest& request = requests.requests()[i];
      if (is_collective(request.candidates.front().family)) {
        plan.collectives.push_back(std::move(request));
        continue;
      }
      plan.requests.push_back(std::move(request));
      for (std::size_t b = 0; b < buckets.size(); ++b)
        plan.steps[b].launches.push_back(i < launches[b].size() ? launches[b][i] : 0);
    }
    return plan;
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

bool is_collective(const std::string& family) {
  return family == kernels::AllReduce::kStem || family == kernels::AllReduceWide::kStem ||
         family == kernels::AllGather::kStem;
}

}  // namespace ingot::trials
