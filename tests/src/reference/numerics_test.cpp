#include "src/reference/numerics.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace ingot::reference;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The nearest value of the table, ties to the even index: rounding by definition.
template <std::size_t N>
float nearest(const std::array<float, N>& table, float x) {
  const double a = std::min<double>(std::fabs(x), table.back());
  std::size_t best = 0;
  for (std::size_t i = 1; i < N; ++i) {
    const double closer = std::fabs(table[i] - a) - std::fabs(table[best] - a);
    if (closer < 0 || (closer == 0 && i % 2 == 0)) best = i;
  }
  return std::copysign(table[best], x);
}

std::array<float, 127> e4m3_table() {
  std::array<float, 127> table{};
  for (int i = 0; i < 127; ++i) {
    const int exponent = i >> 3;
    const float mantissa = static_cast<float>(i & 7) / 8;
    table[static_cast<std::size_t>(i)] =
        exponent == 0 ? mantissa * 0x1p-6F : std::ldexp(1 + mantissa, exponent - 7);
  }
  return table;
}

}  // namespace

TEST_CASE("bf16 rounds to nearest even", "[cpu][reference]") {
  CHECK(bf16_bits(1.0F) == 0x3F80);
  CHECK(bf16_bits(-0.0F) == 0x8000);
  CHECK(bf16_round(1.0F + 0x1p-8F) == 1.0F);               // a tie: to the even neighbour
  CHECK(bf16_round(1.0F + 0x1.8p-7F) == 1.0F + 0x1p-6F);   // a tie, the even one is above
  CHECK(bf16_round(1.0F + 0x1.02p-8F) == 1.0F + 0x1p-7F);  // just over a tie
  CHECK(bf16_round(0x1.fffffep127F) == kInfinity);
  CHECK(bf16_round(-kInfinity) == -kInfinity);
  CHECK(std::isnan(bf16_round(kNan)));
  // A NaN whose mantissa lies in the dropped half stays one.
  CHECK(std::isnan(bf16_round(std::bit_cast<float>(0x7F800001U))));
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    if (bf16_bits(bf16_value(static_cast<std::uint16_t>(bits))) != bits) {
      FAIL("bf16 " << bits << " does not survive");
    }
  }
}

TEST_CASE("e4m3 bytes and values are each other's inverse", "[cpu][reference]") {
  const auto table = e4m3_table();
  for (int byte = 0; byte < 256; ++byte) {
    CAPTURE(byte);
    const float value = e4m3_value(static_cast<std::uint8_t>(byte));
    if ((byte & 0x7F) == 0x7F) {
      CHECK(std::isnan(value));
      continue;
    }
    const float magnitude = table[static_cast<std::size_t>(byte & 0x7F)];
    CHECK(value == (byte < 128 ? magnitude : -magnitude));
    CHECK(std::signbit(value) == (byte >= 128));
    CHECK(e4m3_bits(value) == byte);
  }
  CHECK(e4m3_bits(kNan) == 0x7F);
}

TEST_CASE("e4m3 rounds to the nearest value, ties to even, and saturates", "[cpu][reference]") {
  const auto table = e4m3_table();
  CHECK(e4m3_round(1e9F) == 448.0F);
  CHECK(e4m3_round(-kInfinity) == -448.0F);
  CHECK(std::isnan(e4m3_round(kNan)));
  CHECK(std::signbit(e4m3_round(-1e-9F)));
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const float middle = (table[i] + table[i + 1]) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 999.0F),
                          table[i], 0.75F * table[i] + 0.25F * table[i + 1]}) {
      CAPTURE(x);
      CHECK(e4m3_round(x) == nearest(table, x));
      CHECK(e4m3_round(-x) == -nearest(table, x));
    }
  }
}

TEST_CASE("e2m1 rounds to the nearest value, ties to even, and saturates", "[cpu][reference]") {
  const std::array<float, 8> table = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint8_t nibble = 0; nibble < 16; ++nibble) {
    const float value = e2m1_value(nibble);
    CHECK(std::fabs(value) == table[nibble & 7]);
    CHECK(std::signbit(value) == (nibble >= 8));
    CHECK(e2m1_bits(value) == nibble);
  }
  for (int i = 0; i <= 800; ++i) {  // steps of 1/100, all ties among them
    const float x = static_cast<float>(i) / 100;
    CAPTURE(x);
    CHECK(e2m1_round(x) == nearest(table, x));
    CHECK(e2m1_round(-x) == -nearest(table, x));
  }
  CHECK(std::isnan(e2m1_round(kNan)));
}

TEST_CASE("scales are powers of two taken from the bits", "[cpu][reference]") {
  CHECK(e8m0_value(127) == 1.0F);
  CHECK(e8m0_value(0) == 0x1p-127F);
  CHECK(e8m0_value(254) == 0x1p127F);
  CHECK(std::isnan(e8m0_value(255)));
  CHECK(pow2(-149) == 0x1p-149F);
  CHECK(ceil_log2(1.0F) == 0);
  CHECK(ceil_log2(std::nextafter(1.0F, 2.0F)) == 1);
  CHECK(ceil_log2(0.75F) == 0);
}

TEST_CASE("actquant picks the scale that the largest value needs", "[cpu][reference]") {
  std::vector<float> row(256, 0.0F);
  row[3] = -448.0F;  // 448 · (1/448) is exactly 1 in fp32: scale 1
  row[5] = 17.0F;    // between 16 and 18, a tie: to even
  row[128] = 449.0F;
  row[129] = 1.0F;
  CHECK(act_quant_exponent(std::span(row).first(128)) == 0);
  CHECK(act_quant_exponent(std::span(row).last(128)) == 1);
  std::vector<std::uint8_t> codes(256);
  std::vector<std::uint8_t> scales(2);
  act_quant_bytes(row, 128, codes, scales);
  act_quant(row, 128);
  CHECK(row[3] == -448.0F);
  CHECK(row[5] == 16.0F);
  CHECK(row[128] == 448.0F);
  CHECK(row[129] == 1.0F);
  CHECK(scales == std::vector<std::uint8_t>{127, 128});
  for (std::size_t i = 0; i < row.size(); ++i) {
    CHECK(e4m3_value(codes[i]) * e8m0_value(scales[i / 128]) == row[i]);
  }
}

TEST_CASE("actquant floors the largest value, not the scale", "[cpu][reference]") {
  std::vector<float> row(64, 0.0F);
  row[0] = 1e-5F;
  // 1e-4 / 448 = 2^-22.09: scale 2^-22.
  CHECK(act_quant_exponent(row) == -22);
  act_quant(row, 64);
  CHECK(row[0] == e4m3_round(1e-5F * 0x1p22F) * 0x1p-22F);
}

TEST_CASE("fp4quant packs the even element into the low nibble", "[cpu][reference]") {
  std::vector<float> row(64, 0.0F);
  row[0] = 6.0F;
  row[1] = -2.5F;  // a tie between 2 and 3: to even
  row[32] = 12.5F;
  std::vector<std::uint8_t> packed(32);
  std::vector<std::uint8_t> scales(2);
  fp4_quant_bytes(row, packed, scales);
  CHECK(packed[0] == ((0x8 | 4) << 4 | 7));
  CHECK(scales == std::vector<std::uint8_t>{127, 129});
  fp4_quant(row);
  CHECK(row[0] == 6.0F);
  CHECK(row[1] == -2.0F);
  CHECK(row[32] == 12.0F);
  std::vector<float> zeros(32, 0.0F);
  CHECK(fp4_quant_exponent(zeros) == -126);
  fp4_quant(zeros);
  CHECK(zeros == std::vector<float>(32, 0.0F));
}

TEST_CASE("a NaN stays in its place through the quantisers", "[cpu][reference]") {
  std::vector<float> row(128, 1.0F);
  row[7] = kNan;
  act_quant(row, 128);
  CHECK(std::isnan(row[7]));
  CHECK(row[8] == 1.0F);
  std::vector<float> row4(32, 1.0F);
  row4[7] = kNan;
  fp4_quant(row4);
  CHECK(std::isnan(row4[7]));
  CHECK(row4[8] == 1.0F);
}
