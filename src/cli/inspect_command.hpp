#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>

namespace ingot {

/// For what GPU a memory plan is wanted.
struct GpuWish {
  std::uint64_t memory_bytes = 0;
  int max_batch = 8;
  std::int64_t context = 16384;
};

struct InspectOptions {
  std::filesystem::path model;
  int tp = 0;  ///< --tp: also print what each of so many ranks loads; 0 = do not
  std::optional<GpuWish> gpu =
      std::nullopt;   ///< --gpu-memory: also print what a rank's GPU would hold
  bool hash = false;  ///< also print every tensor's digest, and check every scale and expert id
  bool json = false;
  int threads = 1;  ///< for --hash
};

/// `ingot inspect`: what a checkpoint holds and all that is wrong with it, as a table or one JSON
/// object on `out`. What is wrong also goes to standard error, unless that is the same terminal.
/// Returns the exit status: 0 the checkpoint is whole, 2 it is not, 1 it is and does not fit into
/// the GPU that was asked about.
int run_inspect(const InspectOptions& options, std::FILE* out);

}  // namespace ingot
