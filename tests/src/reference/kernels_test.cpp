#include "src/reference/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "src/reference/compressor.hpp"
#include "src/reference/indexer.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rope.hpp"
#include "src/reference/row_history.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::reference;

namespace {

/// Values whose sums round, the same on every call.
std::vector<float> some_values(std::size_t count, std::uint64_t seed) {
  std::vector<float> values;
  for (const TokenId id : ingot::test::some_tokens(1 << 20, count, seed)) {
    values.push_back(static_cast<float>(id - (1 << 19)) / 77777.0F);
  }
  return values;
}

/// The order of every dot product, written down: 16 lanes, then a tree.
float lane_dot(const float* x, const float* y, int k) {
  float lanes[16] = {};
  for (int i = 0; i < k; ++i)
    lanes[i % 16] += x[i] * y[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l)
      lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace

TEST_CASE("dot products have one order of summation, whatever the block", "[cpu][reference]") {
  const int k = 272;
  for (const int x_rows : {1, 2, 3, 4, 5, 9}) {
    for (const int w_rows : {1, 3, 4, 6, 17}) {
      CAPTURE(x_rows, w_rows);
      const auto x = some_values(static_cast<std::size_t>(x_rows * k), 1);
      const auto w = some_values(static_cast<std::size_t>(w_rows * k), 2);
      std::vector<float> y(static_cast<std::size_t>(x_rows * w_rows));
      std::vector<const float*> x_pointers;
      std::vector<float*> y_pointers;
      for (int r = 0; r < x_rows; ++r) {
        x_pointers.push_back(&x[static_cast<std::size_t>(r * k)]);
        y_pointers.push_back(&y[static_cast<std::size_t>(r * w_rows)]);
      }
      dot_rows(x_pointers.data(), x_rows, w.data(), w_rows, k, y_pointers.data());
      for (int r = 0; r < x_rows; ++r) {
        for (int c = 0; c < w_rows; ++c) {
          const float want =
              lane_dot(&x[static_cast<std::size_t>(r * k)], &w[static_cast<std::size_t>(c * k)], k);
          CHECK(y[static_cast<std::size_t>(r * w_rows + c)] == want);
        }
      }
      CHECK(dot(x.data(), w.data(), k) == y[0]);
    }
  }
}

TEST_CASE("weighted sums add in ascending order", "[cpu][reference]") {
  const int width = 80;
  const int count = 37;
  const int rows = 7;
  const auto weights = some_values(static_cast<std::size_t>(rows * count), 3);
  const auto values = some_values(static_cast<std::size_t>(count * width), 4);
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  weighted_sums(weights.data(), count, rows, values.data(), count, width, out.data());
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < width; ++c) {
      float want = 0;
      for (int j = 0; j < count; ++j) {
        want += weights[static_cast<std::size_t>(r * count + j)] *
                values[static_cast<std::size_t>(j * width + c)];
      }
      CHECK(out[static_cast<std::size_t>(r * width + c)] == want);
    }
  }
}

TEST_CASE("vector conversions are the scalar ones", "[cpu][reference]") {
  std::vector<std::uint8_t> bytes(256);
  for (int i = 0; i < 256; ++i)
    bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
  std::vector<float> floats(256);
  const std::vector<std::uint8_t> block_scales = {125, 126};
  convert_e4m3(reinterpret_cast<const std::byte*>(bytes.data()), 256, 1, 0, 256,
               block_scales.data(), floats.data());
  for (std::size_t i = 0; i < 256; ++i) {
    const float want = (i < 128 ? 0.25F : 0.5F) * e4m3_value(bytes[i]);
    if (std::isnan(want)) {
      CHECK(std::isnan(floats[i]));
    } else {
      CHECK(std::bit_cast<std::uint32_t>(floats[i]) == std::bit_cast<std::uint32_t>(want));
    }
  }
  std::vector<float> nibbles(512);
  const std::vector<std::uint8_t> scales = {120, 121, 122, 123, 124, 125, 126, 127,
                                            128, 129, 130, 131, 132, 133, 134, 0};
  convert_e2m1(reinterpret_cast<const std::byte*>(bytes.data()), scales.data(), 512,
               nibbles.data());
  for (std::size_t i = 0; i < 512; ++i) {
    const auto nibble =
        static_cast<std::uint8_t>(i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4);
    CHECK(nibbles[i] == e2m1_value(nibble) * e8m0_value(scales[i / 32]));
  }
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(65536);
  convert_bf16(halves.data(), 65536, wide.data());
  auto values = some_values(1003, 5);
  values[1000] = std::numeric_limits<float>::quiet_NaN();
  values[7] = -std::numeric_limits<float>::infinity();
  const auto before = values;
  round_bf16(values);
  bool same = true;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    same = same && std::bit_cast<std::uint32_t>(wide[i]) == i << 16;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    same = same && std::bit_cast<std::uint32_t>(values[i]) ==
                       std::bit_cast<std::uint32_t>(bf16_round(before[i]));
  }
  CHECK(same);
}

TEST_CASE("the top indices are those of the highest values, ties to the lowest index",
          "[cpu][reference]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(top_indices(std::vector<float>{}, 3).empty());
  CHECK(top_indices(std::vector<float>{1, 2}, 3) == std::vector<int>{0, 1});
  CHECK(top_indices(std::vector<float>{1, 5, 5, 5, 2}, 2) == std::vector<int>{1, 2});
  CHECK(top_indices(std::vector<float>{nan, -1, -2, nan}, 2) == std::vector<int>{1, 2});
  CHECK(top_indices(std::vector<float>{0.0F, -0.0F, 0.0F}, 2) == std::vector<int>{0, 1});
}

TEST_CASE("the Hadamard transform is its own inverse and keeps the length", "[cpu][reference]") {
  std::vector<float> unit(128, 0.0F);
  unit[3] = 16.0F;
  hadamard(unit);
  const float entry = bf16_round(16.0F / std::sqrt(128.0F));
  for (std::size_t i = 0; i < 128; ++i) {
    const bool negative = std::popcount(i & 3U) % 2 == 1;  // Sylvester: (−1)^popcount(i & j)
    CHECK(unit[i] == (negative ? -entry : entry));
  }
}

TEST_CASE("YaRN leaves fast pairs alone and slows slow ones down", "[cpu][reference]") {
  ModelConfig config;
  config.rope_dim = 64;
  config.rope_theta = 10000;
  config.compress_rope_theta = 160000;
  config.yarn_factor = 16;
  config.yarn_original_max_position = 65536;
  const auto plain = rope_frequencies(config, 0);
  const auto yarn = rope_frequencies(config, 4);
  REQUIRE(plain.size() == 32);
  CHECK(plain[0] == 1.0F);
  CHECK(plain[16] == Approx(0.01).epsilon(1e-6));
  CHECK(yarn[15] == Approx(std::pow(160000.0, -30.0 / 64)).epsilon(1e-6));
  CHECK(yarn[16] == Approx(2.265625e-3).epsilon(1e-6));
  CHECK(yarn[20] == Approx(2.9697770e-4).epsilon(1e-6));
  CHECK(yarn[31] == Approx(5.6805290e-7).epsilon(1e-6));
}

TEST_CASE("rope turns the last dims by the fp32 angle, far out too", "[cpu][reference]") {
  const std::vector<float> frequencies = {0.7F, 0.013F};
  const std::vector<std::int64_t> positions = {0, 1000003};
  const RopeAngles angles(frequencies, positions);
  std::vector<float> x = {5, 6, 1, 0, 0, 1};
  angles.rotate(0, x);
  CHECK(x == std::vector<float>{5, 6, 1, 0, 0, 1});
  angles.rotate(1, x);
  CHECK(x[0] == 5);
  CHECK(x[1] == 6);
  const double first = 1000003.0F * 0.7F;
  const double second = 1000003.0F * 0.013F;
  CHECK(x[2] == bf16_round(static_cast<float>(std::cos(first))));
  CHECK(x[3] == bf16_round(static_cast<float>(std::sin(first))));
  CHECK(x[4] == bf16_round(static_cast<float>(-std::sin(second))));
  CHECK(x[5] == bf16_round(static_cast<float>(std::cos(second))));
}

TEST_CASE("ranges of a stored matrix are its rows and columns", "[cpu][reference]") {
  const test::SyntheticModel model("tiny");
  const Checkpoint checkpoint = model.open();
  for (const std::string name :
       {"layers.0.attn.wq_b", "layers.1.ffn.experts.3.w2", "layers.2.attn.wo_b"}) {
    CAPTURE(name);
    const WeightMatrix whole =
        weight_matrix(checkpoint.tensor(name + ".weight"), &checkpoint.tensor(name + ".scale"));
    std::vector<float> all(static_cast<std::size_t>(whole.rows * whole.columns));
    dequantize_rows(whole, 0, whole.rows, all.data());
    const int first_row = whole.rows / 2;
    const int first_column = whole.columns / 2;
    const WeightMatrix part = whole.row_range(first_row, 3).column_range(first_column, 32);
    std::vector<float> some(3 * 32);
    dequantize_rows(part, 0, 3, some.data());
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 32; ++c) {
        CHECK(some[static_cast<std::size_t>(r * 32 + c)] ==
              all[static_cast<std::size_t>((first_row + r) * whole.columns + first_column + c)]);
      }
    }
  }
}

TEST_CASE("a row history forgets its front and drops its end", "[cpu][reference]") {
  RowHistory<int> rows(2);
  for (int i = 0; i < 10; ++i) {
    const auto row = rows.append(1);
    row[0] = i;
    row[1] = -i;
  }
  rows.forget_before(4);
  CHECK(rows.first() == 0);  // fewer than what stays: not worth a move
  rows.forget_before(7);
  CHECK(rows.first() == 7);
  CHECK(rows.end() == 10);
  CHECK(rows.row(8)[1] == -8);
  rows.truncate(9);
  CHECK(rows.end() == 9);
  rows.append(1)[0] = 42;
  CHECK(rows.row(9)[0] == 42);
  rows.forget_before(99);
  CHECK(rows.first() == 10);
  CHECK(rows.end() == 10);
}

TEST_CASE("a parallel loop covers every index once", "[cpu][reference]") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const std::int64_t count : {0, 1, 7, 1000}) {
      for (const std::int64_t grain : {1, 3, 2000}) {
        CAPTURE(threads, count, grain);
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            ++seen[static_cast<std::size_t>(i)];
        });
        CHECK(std::ranges::all_of(seen, [](const auto& n) { return n == 1; }));
      }
    }
  }
}

TEST_CASE("a parallel loop rethrows a body's error and can be used again", "[cpu][reference]") {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    CHECK_THROWS_WITH(pool.parallel_for(100, 1,
                                        [](std::int64_t begin, std::int64_t) {
                                          if (begin >= 40) throw std::runtime_error("forty");
                                        }),
                      "forty");
  }
  std::atomic<int> sum = 0;
  pool.parallel_for(
      100, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
  CHECK(sum == 100);
}
