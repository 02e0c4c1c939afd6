#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/base/error.hpp"

namespace ingot {

struct SynthOptions {
  std::filesystem::path config_json;
  std::uint64_t seed = 0;
  std::filesystem::path out;  ///< a folder; made where it is missing
  /// tokenizer.json, tokenizer.json.zst, or a folder with one of them. Its tokenizer.json
  /// (decompressed), and tokenizer_config.json and generation_config.json where they lie beside it,
  /// go into `out`, so that the folder is a complete model.
  std::optional<std::filesystem::path> tokenizer;
  bool force = false;  ///< write into a folder that is not empty, over the checkpoint in it
  int threads = 1;     ///< each holds a buffer of 4 MiB, nothing else grows
};

/// Called from one thread at a time.
using SynthProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

/// Writes a checkpoint of random weights: config.json, and one model.safetensors whose bytes depend
/// on nothing but the config and the seed. Every file appears under its name when it is whole,
/// config.json last; an interrupted run leaves model.safetensors.partial, which the next one
/// overwrites.
/// Errors: what read_model_config returns; invalid_argument (the folder holds something; a hash
/// layer needs a power of two of experts), not_found (tokenizer), io.
[[nodiscard]] Result<void> write_synthetic_checkpoint(const SynthOptions& options,
                                                      const SynthProgress& progress);

}  // namespace ingot
