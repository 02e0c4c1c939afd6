#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernel_templates/common/types.cuh"
#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/model_config.hpp"

/// The weights of one rank in device memory, in the layouts that the kernel families read. Every
/// pointer below is a device address, 256-byte aligned, valid as long as the DeviceWeights.
namespace ingot::executor {

/// A block-scaled FP8 matrix as fp8_linear and grouped_linear read it: tiles of 128 x 128
/// (kernel_templates/fp8_linear.args.h).
struct Fp8Matrix {
  const kernels::fp8_e4m3* tiles = nullptr;  ///< [rows / 128][cols / 128][16384]
  const kernels::ue8m0* scales = nullptr;    ///< [rows / 128, cols / 128]
  int rows = 0;
  int cols = 0;
};

/// A bf16 matrix as in the checkpoint: [rows, cols] row-major.
struct Bf16Matrix {
  const kernels::bf16* values = nullptr;
  int rows = 0;
  int cols = 0;
};

struct HyperConnection {
  const float* fn = nullptr;     ///< [24, 4 * hidden]; of a head [4, 4 * hidden]
  const float* base = nullptr;   ///< [24]; of a head [4]
  const float* scale = nullptr;  ///< [3]; of a head [1]
};

struct Compressor {
  Bf16Matrix wkv;                       ///< [width, hidden]
  Bf16Matrix wgate;                     ///< [width, hidden]
  const float* ape = nullptr;           ///< [ratio, width]
  const kernels::bf16* norm = nullptr;  ///< [dims]
};

struct Indexer {
  Fp8Matrix wq_b;           ///< [index heads * 128, q_lora_rank]; all heads, on every rank
  Bf16Matrix weights_proj;  ///< [index heads, hidden]
  Compressor compressor;
};

struct Experts {
  Bf16Matrix gate;                              ///< [experts, hidden]
  const float* bias = nullptr;                  ///< [experts]; null in a hash layer
  const kernels::u16* token_experts = nullptr;  ///< [vocabulary, top]; null but in a hash layer
  const kernels::u8* gate_up = nullptr;         ///< moe_decode's jobs of all experts
  const kernels::u8* down = nullptr;            ///< likewise
  Fp8Matrix shared_gate, shared_up;             ///< [intermediate of the rank, hidden]: w1, w3
  Fp8Matrix shared_down;                        ///< [hidden, intermediate of the rank]: w2
};

struct Layer {
  HyperConnection hc_attention, hc_ffn;
  const kernels::bf16* attention_norm = nullptr;  ///< [hidden]
  const kernels::bf16* ffn_norm = nullptr;        ///< [hidden]
  Fp8Matrix wq_a, wkv, wq_b, wo_a, wo_b;          ///< wo_a: [groups of the rank * o_lora, cols]
  const kernels::bf16* q_norm = nullptr;          ///< [q_lora_rank]
  const kernels::bf16* kv_norm = nullptr;         ///< [head_dim]
  const float* sink = nullptr;                    ///< [heads of the rank]
  Compressor compressor;                          ///< layers of ratio 4 and 128
  Indexer indexer;                                ///< layers of ratio 4
  Experts experts;
};

/// The draft block's own parts; its layer is Layer like any other.
struct DraftBlock {
  Layer layer;
  Fp8Matrix e_proj, h_proj;  ///< [hidden, hidden]
  const kernels::bf16* e_norm = nullptr;
  const kernels::bf16* h_norm = nullptr;
  const kernels::bf16* norm = nullptr;
  HyperConnection hc_head;
};

struct WeightOptions {
  int tp_rank = 0;
  int tp_size = 1;
  int threads = 4;     ///< that read and repack; at least 1
  int max_layers = 0;  ///< of the trunk, from the first on; 0: all. For synthetic weights only.
  /// Layers with routed experts of their own, which the others share by turns; 0: all. For
  /// synthetic weights only.
  int expert_sets = 0;
};

/// Called on the thread that loads, ten times a second and at the end, with bytes of the rank's
/// weights done and in all. What it throws ends the loading, frees everything and goes through.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

class DeviceWeights {
 public:
  /// Reads, checks and repacks this rank's share of a checkpoint. Shards are read in parallel
  /// through pinned staging memory (32 MiB a thread); each byte of the rank is read once.
  /// @param context  current on this thread; outlives the result
  /// Errors: invalid_argument for a rank or TP size that the model does not have, corrupt for
  /// damage found on the way (as check_values reports it), unsupported where a matrix is not whole
  /// tiles, cuda where device memory does not suffice (how much was asked for, how much is free).
  [[nodiscard]] static Result<DeviceWeights> load(const cu::Context& context,
                                                  const Checkpoint& checkpoint,
                                                  const WeightOptions& options,
                                                  const LoadProgress& progress = {});
  /// Random weights of plausible size, made in device memory; for measuring. Values repeat.
  /// Errors: as load().
  [[nodiscard]] static Result<DeviceWeights> synthetic(const cu::Context& context,
                                                       const ModelConfig& config,
                                                       const WeightOptions& options);

  DeviceWeights(DeviceWeights&&) noexcept;
  DeviceWeights& operator=(DeviceWeights&&) noexcept;
  ~DeviceWeights();

  const Bf16Matrix& embedding() const;  ///< [vocabulary share, hidden]
  int first_token() const;              ///< id of the embedding's and the head's first row
  const Bf16Matrix& head() const;       ///< [vocabulary share, hidden]
  const kernels::bf16* norm() const;
  const HyperConnection& hc_head() const;
  const std::vector<Layer>& layers() const;
  const DraftBlock* draft() const;            ///< null where the model has none
  const float* plain_frequencies() const;     ///< [32] rope of layers of ratio 0
  const float* compress_frequencies() const;  ///< [32] rope of all others
  std::uint64_t bytes() const;                ///< of device memory

 private:
  struct Impl;
  explicit DeviceWeights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Bytes of device memory that a rank's weights take, by the same arithmetic that places them.
/// Throws EngineError: invalid_argument and unsupported as load().
std::uint64_t device_weight_bytes(const ModelConfig& config, const WeightOptions& options);

}  // namespace ingot::executor
