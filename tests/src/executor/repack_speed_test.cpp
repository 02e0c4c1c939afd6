#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "kernel_templates/fp8_weight_tiles.hpp"
#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/executor/weight_loader.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "tests/support/made_checkpoint.hpp"
#include "tests/support/memory_weight_store.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// More than any cache holds.
constexpr std::size_t kSourceBytes = std::size_t{512} << 20;

std::vector<std::byte> random_codes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(&bytes[i], &bits, 8);
  }
  return bytes;
}

/// @param repack  (place in the source) -> bytes read
template <class Repack>
double gigabytes_per_second(const Repack& repack) {
  const std::clock_t start = std::clock();  // of this process: others on the machine do not count
  std::size_t bytes = 0;
  for (std::size_t at = 0; at + (std::size_t{16} << 20) <= kSourceBytes;) {
    const std::size_t read = repack(at);
    at += read;
    bytes += read;
  }
  const double taken_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return static_cast<double>(bytes) / 1e9 / taken_s;
}

}  // namespace

// Hidden: it takes memory and time. `build/tests/src_executor_tests "[.speed]"` runs it.
TEST_CASE("a core repacks experts and FP8 weights at 0.75 GB a second", "[.speed]") {
  constexpr int kHidden = 4096, kInter = 2048;
  const std::vector<std::byte> source = random_codes(kSourceBytes);
  const std::vector<std::byte> scales(std::size_t{kHidden} * kInter / 32, std::byte{120});
  std::vector<std::byte> out(std::size_t{16} << 20);
  constexpr std::size_t kMatrix = std::size_t{kHidden} * kInter / 2;  // bytes of codes
  const auto matrix = [&](std::size_t at, int columns) {
    return kernels::Fp4Matrix{.codes = &source[at],
                              .scales = scales.data(),
                              .code_stride = columns / 2,
                              .scale_stride = columns / 32};
  };
  const double gate_up = gigabytes_per_second([&](std::size_t at) {
    kernels::pack_moe_gate_up(matrix(at, kHidden), matrix(at + kMatrix, kHidden), kInter, kHidden,
                              std::span(out).first(kernels::moe_tile_bytes(2 * kInter, kHidden)));
    return 2 * kMatrix;
  });
  const double down = gigabytes_per_second([&](std::size_t at) {
    kernels::pack_moe_down(matrix(at, kInter), kHidden, kInter,
                           std::span(out).first(kernels::moe_tile_bytes(kHidden, kInter)));
    return kMatrix;
  });
  const double fp8 = gigabytes_per_second([&](std::size_t at) {
    kernels::pack_fp8_tiles(&source[at], kHidden, kInter, kHidden,
                            std::span(out).first(2 * kMatrix));
    return 2 * kMatrix;
  });
  fmt::print("repack on one core: gate and up {:.2f}, down {:.2f}, FP8 {:.2f} GB/s\n", gate_up,
             down, fp8);
  CHECK(gate_up > 0.75);
  CHECK(down > 0.75);
  CHECK(fp8 > 0.75);
}

TEST_CASE("a thread loads from the page cache at 0.75 GB a second", "[.speed]") {
  auto json = nlohmann::json::parse(
      test::read_file(test::golden_dir() / "checkpoint" / "deepseek-v4-flash.json"));
  json["num_hidden_layers"] = 2;
  json["num_hash_layers"] = 0;
  json["num_nextn_predict_layers"] = 0;
  json["compress_ratios"] = {0, 4};
  const test::TempDir folder;
  test::write_sparse_checkpoint(folder.path(), json.dump(), 1, false);
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(folder.path()));
  const executor::WeightOptions options{.tp_size = 8};
  const std::uint64_t bytes = executor::device_weight_bytes(checkpoint.config(), options);
  test::MemoryWeightStore store(bytes);
  const auto placement = executor::place_weights(checkpoint.config(), options, store.base());
  for (int run = 0; run < 2; ++run) {
    const std::clock_t start = std::clock();
    executor::load_weights(checkpoint, placement, store, {.threads = 1}, {});
    const double taken_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const double speed = static_cast<double>(bytes) / 1e9 / taken_s;
    fmt::print("loading on one core: {:.2f} GB of weights, {:.2f} GB/s\n",
               static_cast<double>(bytes) / 1e9, speed);
    if (run == 1) CHECK(speed > 0.75);  // the first run fills the page cache
  }
}
