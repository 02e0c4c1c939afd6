#include "tools/moe_bench/random_jobs.hpp"

#include <cstring>
#include <random>

#include "kernel_templates/moe_weight_tiles.hpp"

namespace ingot::bench {
namespace {

constexpr std::size_t kJobElements = 32 * 128;

}  // namespace

std::vector<std::byte> random_jobs() {
  std::mt19937_64 random(11);
  const auto columns = static_cast<int>(kRandomJobs * 128);
  std::vector<std::byte> codes(kRandomJobs * kJobElements / 2),
      scales(kRandomJobs * kJobElements / 32);
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(&codes[i], &bits, 8);
  }
  for (auto& scale : scales)
    scale = static_cast<std::byte>(117 + random() % 5);
  std::vector<std::byte> jobs(kernels::moe_tile_bytes(32, columns));
  kernels::pack_moe_down({.codes = codes.data(),
                          .scales = scales.data(),
                          .code_stride = columns / 2,
                          .scale_stride = columns / 32},
                         32, columns, jobs);
  return jobs;
}

}  // namespace ingot::bench
