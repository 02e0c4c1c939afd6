#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver_api.hpp"
#include "src/bench/card_rates.hpp"
#include "src/bench/serve_bench.hpp"
#include "src/cli/environment.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/executor/device_engine.hpp"

namespace ingot {

struct BenchOptions {
  enum class What { decode, prefill, kernels, serve };
  What what = What::decode;
  KernelCacheOptions cache;
  Environment environment;
  std::filesystem::path checkpoint;   ///< of --model; empty: made-up weights
  std::filesystem::path config_json;  ///< of --synthetic
  int layers = 0;                     ///< of made-up weights; 0: all
  std::vector<int> batches{1, 16, 64};
  std::vector<std::int64_t> contexts{2048, 32768};
  int steps = 20;
  std::int64_t tokens = 8192;
  int chunk = 4096;
  std::vector<int> concurrency{1, 16, 64};
  TokenRange input{.least = 512, .most = 512}, output{.least = 256, .most = 256};
  int requests = 0;             ///< of serve, for each concurrency; 0: four times that, at least 8
  std::uint64_t seed = 1;       ///< of serve's lengths and prompts
  std::string device = "cuda";  ///< of serve: auto, cuda or cpu
  int tp_size = 1;
  int threads = 1;
  std::vector<std::string> families;  ///< kernels: only families whose names begin so; empty: all
  std::vector<int> heads;             ///< kernels: of a rank; empty: those of tp_size
  std::vector<int> prompt_rows;       ///< kernels: of steps of one prompt, besides the batches
  bool all_candidates = false;        ///< kernels: not only the default and what runs
  std::vector<std::string> pins, disabled;
  bool deterministic = false;       ///< decode is measured both ways, the others this way
  std::filesystem::path json, svg;  ///< files to write; empty: none
  bool force = false;               ///< files that are there may be replaced
};

/// `ingot bench`: measures steps on the first GPU against that card's own limits, or what a
/// scheduler reaches. Results go to `out` and to the files that the options name. Returns the exit
/// status 0. Throws EngineError; unsupported without a GPU, where serve is not asked for the CPU.
int run_bench(const BenchOptions& options, std::FILE* out);

/// The same on a card and with kernels that are given.
/// @param compiler  version of NVRTC, for the head of the report; empty where there is none
int run_bench_on(const BenchOptions& options, std::shared_ptr<const cu::DriverApi> driver,
                 KernelSource source, const std::string& compiler, const RatePolicy& rates,
                 std::FILE* out);

}  // namespace ingot
