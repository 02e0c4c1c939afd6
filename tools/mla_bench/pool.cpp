#include "tools/mla_bench/pool.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

namespace ingot::bench {
namespace {

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Normal values in bf16, drawn from by index.
const std::vector<std::uint16_t>& normal_table() {
  static const std::vector<std::uint16_t> table = [] {
    std::vector<std::uint16_t> values(4096);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double u = (static_cast<double>(mixed(2 * i) >> 11) + 1) * 0x1p-53;
      const double v = static_cast<double>(mixed(2 * i + 1) >> 11) * 0x1p-53;
      const auto bits = std::bit_cast<std::uint32_t>(
          static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v)));
      values[i] = static_cast<std::uint16_t>((bits + 0x8000U) >> 16);
    }
    return values;
  }();
  return table;
}

}  // namespace

test::KvEntry make_entry(std::uint64_t seed, int entry) {
  test::KvEntry value;
  const std::uint64_t base = mixed(seed ^ (static_cast<std::uint64_t>(entry) << 20));
  for (std::size_t i = 0; i < 56; ++i) {
    std::uint64_t word = mixed(base + i);
    // A NaN code has all seven low bits set: clear one of them.
    const std::uint64_t nan =
        ((word & 0x7f7f7f7f7f7f7f7fULL) + 0x0101010101010101ULL) & 0x8080808080808080ULL;
    word &= ~(nan >> 5);
    std::memcpy(value.codes + 8 * i, &word, 8);
  }
  const auto& normal = normal_table();
  for (std::size_t i = 0; i < 64; i += 4) {
    const std::uint64_t word = mixed(base + 64 + i);
    for (std::size_t j = 0; j < 4; ++j)
      value.rope[i + j] = normal[(word >> (12 * j)) & 4095];
  }
  const std::uint64_t word = mixed(base + 200);
  for (std::size_t i = 0; i < 7; ++i)
    value.scale_bytes[i] = static_cast<std::uint8_t>(117 + (word >> (8 * i) & 255) % 5);
  return value;
}

std::vector<std::uint8_t> make_pool(const test::KvLayout& layout, int entries, std::uint64_t seed) {
  const int pages = (entries + layout.page_entries - 1) / layout.page_entries;
  std::vector<std::uint8_t> pool(static_cast<std::size_t>(pages) *
                                 static_cast<std::size_t>(layout.page_bytes));
  (void)normal_table();
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      for (int entry = t; entry < entries; entry += threads)
        test::store_entry(pool, layout, entry, make_entry(seed, entry));
    });
  workers.clear();  // joins
  return pool;
}

}  // namespace ingot::bench
