#include "src/executor/step_buffers.hpp"

#include <algorithm>

#include "kernel_templates/act_quant.args.h"
#include "kernel_templates/indexer_scores.args.h"
#include "src/plan/step_problems.hpp"

namespace ingot::executor {
namespace {

/// Places arrays one behind the other; with a base of 0 it only counts.
class Arena {
 public:
  explicit Arena(cu::CUdeviceptr base) : base_(base) {}

  template <class T>
  void place(T*& array, std::int64_t count) {
    array = reinterpret_cast<T*>(base_ + end_);
    end_ += (static_cast<std::uint64_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
  std::uint64_t bytes() const { return end_; }

 private:
  cu::CUdeviceptr base_;
  std::uint64_t end_ = 0;
};

std::uint64_t place_all(StepBuffers& b, cu::CUdeviceptr base, const ModelConfig& config, int tp,
                        std::int64_t max_context, std::int64_t rows) {
  constexpr std::int64_t logit_rows = kMostLogitRows;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_dims = std::int64_t{config.num_heads} * config.head_dim / tp;
  const std::int64_t index_heads = config.index_heads;
  const std::int64_t o_dims = std::int64_t{config.o_groups} * config.o_lora_rank / tp;
  const std::int64_t inter = config.moe_intermediate_size / tp;
  const std::int64_t longest = context_bucket(max_context, config.max_position_embeddings);
  Arena a(base);
  const auto quantized = [&](kernels::fp8_e4m3*& codes, float*& scale, std::int64_t cols) {
    a.place(codes, rows * cols);
    a.place(scale, rows * cols / 128);
  };
  a.place(b.inputs, 1);
  a.place(b.window_indices, rows * config.sliding_window);
  a.place(b.window_counts, rows);
  a.place(b.append_slots, rows);
  a.place(b.keep_slots, rows);
  a.place(b.hca_indices, rows * std::max<std::int64_t>(longest / 128, 1));
  a.place(b.hca_counts, rows);
  a.place(b.csa_counts, rows);
  for (auto& streams : b.streams)
    a.place(streams, rows * config.hc_mult * hidden);
  a.place(b.post, rows * config.hc_mult);
  a.place(b.comb, rows * config.hc_mult * config.hc_mult);
  a.place(b.x, rows * hidden);
  quantized(b.x_codes, b.x_scale, hidden);
  a.place(b.q_latent, rows * config.q_lora_rank);
  a.place(b.kv, rows * config.head_dim);
  a.place(b.q_latent_normed, rows * config.q_lora_rank);
  quantized(b.q_codes, b.q_scale, config.q_lora_rank);
  a.place(b.q, rows * q_dims);
  a.place(b.index_q, rows * index_heads * config.index_head_dim);
  a.place(b.index_projected, rows * index_heads);
  a.place(b.k, rows * 2 * config.head_dim);
  a.place(b.s, rows * 2 * config.head_dim);
  a.place(b.index_k, rows * 2 * config.index_head_dim);
  a.place(b.index_s, rows * 2 * config.index_head_dim);
  a.place(b.index_codes, rows * index_heads * kernels::INDEX_CODE_BYTES);
  a.place(b.index_scales, rows * index_heads * kernels::INDEX_SCALE_BYTES);
  a.place(b.index_weights, rows * index_heads);
  a.place(b.index_scores, most_index_scores(rows, longest));
  a.place(b.selected, rows * std::max(config.index_topk, 1));
  a.place(b.selected_counts, rows);
  a.place(b.nan_counts, rows);
  a.place(b.arrived, rows);
  a.place(b.o, rows * q_dims);
  a.place(b.o_latent, rows * o_dims);
  quantized(b.o_codes, b.o_scale, o_dims);
  a.place(b.f, rows * hidden);
  a.place(b.gate_logits, rows * config.num_experts);
  a.place(b.experts, rows * config.experts_per_token);
  a.place(b.expert_weights, rows * config.experts_per_token);
  a.place(b.z_codes, rows * hidden);
  a.place(b.z_scale, rows * kernels::act_quant_scale_stride(config.hidden_size));
  a.place(b.routed, rows * hidden);
  if (rows > kMostNarrowRows)
    a.place(b.grouped, grouped_workspace(config, tp, static_cast<int>(rows)).bytes);
  a.place(b.shared_gate, rows * inter);
  a.place(b.shared_up, rows * inter);
  a.place(b.shared, rows * hidden);
  quantized(b.shared_codes, b.shared_scale, inter);
  a.place(b.picked, logit_rows * config.hc_mult * hidden);
  a.place(b.head_x, logit_rows * hidden);
  a.place(b.logits, logit_rows * config.vocab_size);
  b.logits_share = b.logits;
  if (tp > 1) {
    a.place(b.logits_share, logit_rows * (config.vocab_size / tp));
    a.place(b.logits_by_rank, logit_rows * config.vocab_size);
  }
  a.place(b.samples, logit_rows);
  a.place(b.sample_counters, 2 * logit_rows);
  a.place(b.sample_counts, std::int64_t{StepInputs::kMostAdjustedRows} * config.vocab_size);
  a.place(b.sample_adjusted, std::int64_t{StepInputs::kMostAdjustedRows} * config.vocab_size);
  a.place(b.bias_ids, StepInputs::kMostBiases);
  a.place(b.bias_values, StepInputs::kMostBiases);
  return a.bytes();
}

}  // namespace

std::uint64_t StepMemory::bytes(const ModelConfig& config, int tp_size, std::int64_t max_context,
                                int rows) {
  StepBuffers counted;
  return place_all(counted, 0, config, tp_size, max_context, rows);
}

StepMemory::StepMemory(const cu::Context& context, const cu::Stream& stream,
                       const ModelConfig& config, int tp_size, std::int64_t max_context, int rows)
    : rows_(rows),
      memory_(cu::DeviceBuffer::allocate(context, bytes(config, tp_size, max_context, rows))) {
  place_all(buffers_, memory_.address(), config, tp_size, max_context, rows);
  memory_.fill_bytes(stream, 0);
}

void StepMemory::upload(const cu::Stream& stream, const StepInputs& inputs, int rows,
                        int samples) const {
  const auto offset = reinterpret_cast<cu::CUdeviceptr>(buffers_.inputs) - memory_.address();
  const std::size_t begin =
      static_cast<std::size_t>(kMostLogitRows - samples) * sizeof(StepInputs::samples[0]);
  const std::size_t end =
      offsetof(StepInputs, rows) + 3 * static_cast<std::size_t>(rows) * sizeof(int);
  memory_.copy_from_host(stream, std::as_bytes(std::span(&inputs, 1)).subspan(begin, end - begin),
                         offset + begin);
}

void StepMemory::put(const cu::Stream& stream, void* to, std::span<const std::byte> from) const {
  memory_.copy_from_host(stream, from, reinterpret_cast<cu::CUdeviceptr>(to) - memory_.address());
}

void StepMemory::get(const cu::Stream& stream, const void* from, std::span<std::byte> to) const {
  memory_.copy_to_host(stream, to, reinterpret_cast<cu::CUdeviceptr>(from) - memory_.address());
}

void StepMemory::fetch(const cu::Stream& stream, const void* from, std::span<std::byte> to) const {
  get(stream, from, to);
  stream.synchronize();
}

void* ScratchPool::grow(std::size_t kind, std::int64_t need, unsigned char fill) {
  if (need > sizes_[kind]) {
    buffers_.push_back(cu::DeviceBuffer::allocate(context_, static_cast<std::size_t>(need)));
    buffers_.back().fill_bytes(stream_, fill);
    sizes_[kind] = need;
    newest_[kind] = buffers_.back().as<void>();
    bytes_ += static_cast<std::uint64_t>(need);
  }
  return newest_[kind];
}

StepScratch ScratchPool::take(const KernelScratch& need) {
  StepScratch scratch;
  scratch.any = grow(0, need.any, 0);
  scratch.any_more = grow(1, need.any_more, 0);
  scratch.ones = grow(2, need.ones, 0xff);
  scratch.ones_more = grow(3, need.ones_more, 0xff);
  scratch.ones_beside = grow(4, need.ones_beside, 0xff);
  buffers_.push_back(cu::DeviceBuffer::allocate(context_, kernels::MOE_COUNTER_WORDS * 4));
  buffers_.back().fill_bytes(stream_, 0);
  scratch.expert_counters = buffers_.back().as<kernels::u32>();
  stream_.synchronize();
  return scratch;
}

}  // namespace ingot::executor
