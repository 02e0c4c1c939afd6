#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel_templates/common/types.cuh"
#include "kernel_templates/sample_tokens.args.h"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot::executor {

/// What changes from step to step, as it lies on the device: arrays at places that a bucket fixes.
/// A row is a query token. Rows past those of the step are idle: their sequence is -1. What a
/// bucket uses lies together, so that a small step is a small copy.
struct StepInputs {
  static constexpr int kMostRows = kMostStepRows;
  /// Of a sampled step: rows of logits, from the first on, that penalties and logit bias can
  /// change, and entries of all lists of bias.
  static constexpr int kMostAdjustedRows = 64;
  static constexpr int kMostBiases = 4096;
  kernels::SampleRow samples[kMostLogitRows];  ///< the last ones: sample_rows()
  int row_starts[kMostStepSequences + 1];  ///< [sequences + 1] first row of each; equal: no tokens
  int slots[kMostStepSequences];           ///< [sequences] slot of each; of an idle one any
  int picks[kMostLogitRows];               ///< rows whose logits are wanted
  int rows[3 * kMostRows];                 ///< ids(), positions(), sequences()

  // Of a bucket of so many rows.
  int* ids(int) { return rows; }                                      ///< token ids
  int* positions(int bucket_rows) { return rows + bucket_rows; }      ///< of each in its sequence
  int* sequences(int bucket_rows) { return rows + 2 * bucket_rows; }  ///< slot of each's sequence
  const int* positions(int bucket_rows) const { return rows + bucket_rows; }
  const int* sequences(int bucket_rows) const { return rows + 2 * bucket_rows; }
  /// How the token of each of `count` rows of logits is chosen.
  kernels::SampleRow* sample_rows(int count) { return samples + kMostLogitRows - count; }
};

/// Device memory of one step, at the sizes of the largest. Everything that kernels hand on to each
/// other; contents are undefined between steps.
struct StepBuffers {
  StepInputs* inputs = nullptr;
  // Lists of keys, one for all layers of a kind.
  int *window_indices = nullptr, *window_counts = nullptr;
  int *append_slots = nullptr, *keep_slots = nullptr;
  int *hca_indices = nullptr, *hca_counts = nullptr, *csa_counts = nullptr;
  // Hyper-connections: streams in two places, by turns.
  kernels::bf16* streams[2] = {};
  float *post = nullptr, *comb = nullptr;
  kernels::bf16* x = nullptr;  ///< a sublayer's input [rows, hidden]
  kernels::fp8_e4m3* x_codes = nullptr;
  float* x_scale = nullptr;
  // Attention.
  kernels::bf16 *q_latent = nullptr, *kv = nullptr, *q_latent_normed = nullptr;
  kernels::fp8_e4m3* q_codes = nullptr;
  float* q_scale = nullptr;
  kernels::bf16* q = nullptr;
  kernels::bf16* index_q = nullptr;
  kernels::bf16* index_projected = nullptr;
  float *k = nullptr, *s = nullptr, *index_k = nullptr, *index_s = nullptr;
  kernels::u8 *index_codes = nullptr, *index_scales = nullptr;
  kernels::bf16* index_weights = nullptr;
  float* index_scores = nullptr;
  int *selected = nullptr, *selected_counts = nullptr;
  kernels::u32* nan_counts = nullptr;  ///< [rows] only ever grows
  kernels::u32* arrived = nullptr;     ///< zero between launches
  kernels::bf16 *o = nullptr, *o_latent = nullptr;
  kernels::fp8_e4m3* o_codes = nullptr;
  float* o_scale = nullptr;
  kernels::bf16* f = nullptr;  ///< a sublayer's output [rows, hidden]
  // Experts.
  float* gate_logits = nullptr;
  int* experts = nullptr;
  float* expert_weights = nullptr;
  kernels::fp8_e4m3* z_codes = nullptr;
  float* z_scale = nullptr;
  float* routed = nullptr;
  kernels::u8* grouped = nullptr;  ///< grouped_workspace() of a wide step
  kernels::bf16 *shared_gate = nullptr, *shared_up = nullptr, *shared = nullptr;
  kernels::fp8_e4m3* shared_codes = nullptr;
  float* shared_scale = nullptr;
  // Head.
  kernels::bf16 *picked = nullptr, *head_x = nullptr;
  float* logits = nullptr;        ///< [logit rows, vocabulary]
  float* logits_share = nullptr;  ///< [logit rows, vocabulary share]; with one rank the same place
  float* logits_by_rank = nullptr;  ///< [ranks, logit rows, vocabulary share]; with several
  kernels::SampleResult* samples = nullptr;
  kernels::u32* sample_counters = nullptr;  ///< [logit rows, 2] zero at first, then left alone
  /// [kMostAdjustedRows, vocabulary] as SampleTokensArgs has them; counts are written each step.
  kernels::u16* sample_counts = nullptr;
  float* sample_adjusted = nullptr;
  int* bias_ids = nullptr;  ///< [kMostBiases]
  double* bias_values = nullptr;
};

/// Owns the memory of StepBuffers.
class StepMemory {
 public:
  /// Throws EngineError(cuda) where memory does not suffice.
  /// @param rows  of the largest step
  StepMemory(const cu::Context& context, const cu::Stream& stream, const ModelConfig& config,
             int tp_size, std::int64_t max_context, int rows);

  const StepBuffers& buffers() const { return buffers_; }
  const cu::DeviceBuffer& memory() const { return memory_; }
  int rows() const { return rows_; }
  /// Queues a copy of a step's inputs, which must stay as they are until the stream passed it.
  /// @param rows     of the bucket
  /// @param samples  rows of logits whose tokens the step chooses
  void upload(const cu::Stream& stream, const StepInputs& inputs, int rows, int samples = 0) const;
  /// Queues a copy into one of the buffers, from what stays until the stream passed it.
  void put(const cu::Stream& stream, void* to, std::span<const std::byte> from) const;
  /// Queues a copy out of one of the buffers, to what stays until the stream passed it.
  void get(const cu::Stream& stream, const void* from, std::span<std::byte> to) const;
  /// The same, and waits for the stream.
  void fetch(const cu::Stream& stream, const void* from, std::span<std::byte> to) const;

  static std::uint64_t bytes(const ModelConfig& config, int tp_size, std::int64_t max_context,
                             int rows);

 private:
  int rows_;
  cu::DeviceBuffer memory_;
  StepBuffers buffers_;
};

/// Scratch of one bucket's kernels. Launches of one stream share what KernelScratch allows.
struct StepScratch {
  void *any = nullptr, *any_more = nullptr, *ones = nullptr, *ones_more = nullptr;
  void* ones_beside = nullptr;
  kernels::u32* expert_counters = nullptr;  ///< its own: zero at first, then left alone
};

/// Hands scratch to buckets as they are made. What was handed out stays where it is, as graphs
/// hold its addresses; a bucket that needs more gets new memory, and so do those after it.
class ScratchPool {
 public:
  ScratchPool(const cu::Context& context, const cu::Stream& stream)
      : context_(context), stream_(stream) {}

  /// Waits for the stream. Throws EngineError(cuda).
  StepScratch take(const KernelScratch& need);
  std::uint64_t bytes() const { return bytes_; }

 private:
  void* grow(std::size_t kind, std::int64_t need, unsigned char fill);

  const cu::Context& context_;
  const cu::Stream& stream_;
  std::vector<cu::DeviceBuffer> buffers_;
  std::int64_t sizes_[5] = {};
  void* newest_[5] = {};
  std::uint64_t bytes_ = 0;
};

}  // namespace ingot::executor
