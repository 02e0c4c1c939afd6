#include <algorithm>
#include <cmath>

#include "kernel_templates/hc_pre.args.h"
#include "kernel_templates/rope_kv_append.args.h"
#include "src/bench/kernel_bench.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot {
namespace {

/// A problem's numbers by name; 0 where it has no such field.
class Numbers {
 public:
  explicit Numbers(std::span<const ProblemField> fields) : fields_(fields) {}
  double operator()(std::string_view name) const {
    for (const ProblemField& field : fields_)
      if (field.name == name) return static_cast<double>(field.value);
    return 0;
  }
  /// Of all segments of a linear.
  double rows() const {
    double sum = 0;
    for (const ProblemField& field : fields_)
      if (field.name.starts_with("rows")) sum += static_cast<double>(field.value);
    return sum;
  }

 private:
  std::span<const ProblemField> fields_;
};

constexpr double kBf16 = 2, kFp32 = 4;
constexpr double kFp8Weight = 1 + 1.0 / (128 * 128);  // with the scale of its block
constexpr double kFp4Weight = 0.5 + 1.0 / 32;
constexpr double kIndexDims = 128, kEntryDims = 512;

KernelWork linear(const Numbers& n, double weight_bytes, double in_bytes, bool fp8) {
  return {.bytes = n.rows() * n("cols") * weight_bytes +
                   n("tokens") * (n("cols") * in_bytes + n.rows() * kBf16),
          .operations = 2 * n("tokens") * n.rows() * n("cols"),
          .fp8 = fp8};
}

KernelWork attention(const Numbers& n) {
  const double keys = n("window_slots") + n("selected_slots");
  const double heads = n("rows") * n("heads");
  return {.bytes = n("rows") * keys * (kernels::KV_DATA_BYTES + kernels::KV_SCALE_BYTES) +
                   2 * heads * kEntryDims * kBf16,
          .operations = 4 * heads * keys * kEntryDims};
}

KernelWork experts(const Numbers& n) {
  const double all = n("experts"), tokens = n("batch");
  const double read = all * (1 - std::pow(1 - n("topk") / std::max(all, 1.0), tokens));
  const double weights = 3 * n("inter") * n("hidden");
  return {.bytes = read * weights * kFp4Weight + tokens * n("hidden") * (1 + kFp32),
          .operations = 2 * tokens * n("topk") * weights,
          .fp8 = true};
}

KernelWork scores(const Numbers& n) {
  const double keys = n("rows") * n("entries");
  return {.bytes = keys * (kernels::INDEX_CODE_BYTES + kernels::INDEX_SCALE_BYTES + kFp32),
          .operations = 2 * keys * n("heads") * kIndexDims,
          .fp8 = true};
}

KernelWork hyper_connection(const Numbers& n) {
  const double streams = kernels::HC_STREAMS * n("hidden");
  const double moved = streams * kBf16 * (n("after_sublayer") > 0 ? 2 : 1) +
                       n("hidden") * (kBf16 + n("quantize") + n("after_sublayer") * kBf16);
  return {.bytes = kernels::HC_MIXES * streams * kFp32 + n("tokens") * moved,
          .operations = 2 * n("tokens") * kernels::HC_MIXES * streams};
}

KernelWork moved(double bytes) {
  return {.bytes = bytes};
}

}  // namespace

KernelWork kernel_work(const std::string& family, std::span<const ProblemField> problem) {
  const Numbers n(problem);
  if (family.starts_with("fp8_linear"))
    return linear(n, kFp8Weight, n("x_bf16") > 0 ? kBf16 : 1, true);
  if (family.starts_with("bf16_linear")) return linear(n, kBf16, kBf16, false);
  if (family.starts_with("grouped_linear")) {
    const double weights = n("groups") * n("group_rows") * n("cols");
    return {.bytes = weights * kFp8Weight +
                     n("tokens") * n("groups") * (n("cols") + n("group_rows")) * kBf16,
            .operations = 2 * n("tokens") * weights,
            .fp8 = true};
  }
  if (family.starts_with("sparse_mla_")) return attention(n);
  if (family.starts_with("moe_")) return experts(n);
  if (family.starts_with("indexer_scores")) return scores(n);
  if (family == "indexer_topk") return moved(n("rows") * (n("entries") * kFp32 + n("topk") * 4));
  if (family.starts_with("hc_pre")) return hyper_connection(n);
  if (family == "hc_post")
    return moved(n("tokens") * n("hidden") * kBf16 * (2 * kernels::HC_STREAMS + 1));
  if (family == "expert_sum") return moved(n("tokens") * n("hidden") * (kFp32 + 2 * kBf16));
  if (family == "act_quant") return moved(n("tokens") * n("cols") * (kBf16 + 1));
  if (family == "swiglu_quant") return moved(n("tokens") * n("inter") * (2 * kBf16 + 1));
  if (family == "q_norm_rope") return moved(n("tokens") * n("heads") * n("dims") * 2 * kBf16);
  if (family == "embedding") return moved(n("tokens") * n("hidden") * kBf16 * (1 + n("streams")));
  if (family == "sample_tokens") return moved(n("rows") * n("vocabulary") * kFp32);
  if (family == "shared_expert_few") {
    const double weights = 3 * n("hidden") * n("inter"), gate = n("experts") * n("hidden");
    return {
        .bytes = weights * kFp8Weight + gate * kBf16 + n("tokens") * n("hidden") * (1 + 2 * kBf16),
        .operations = 2 * n("tokens") * (weights + gate),
        .fp8 = true};
  }
  if (family == "router_topk")
    return moved(n("gate") * n("experts") * n("hidden") * kBf16 +
                 n("tokens") * (n("gate") > 0 ? n("hidden") * kBf16 : n("experts") * kFp32));
  return {};
}

double floor_us(const KernelWork& work, const CardRates& rates) {
  const double multiplying = work.operations / (work.fp8 ? rates.fp8_per_us : rates.f16_per_us);
  const double reading = work.bytes > 0 ? cold_read_us(rates.reads, work.bytes) : 0;
  return std::max({reading, multiplying, rates.empty_node_us});
}

}  // namespace ingot
