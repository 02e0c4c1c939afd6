#include "tuner/agreement.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

using namespace ingot;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
KernelOutput output(Dtype dtype, const std::vector<T>& values, double tolerance) {
  KernelOutput made{.name = "out", .dtype = dtype, .tolerance = tolerance, .bytes = {}};
  made.bytes.resize(values.size() * sizeof(T));
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

/// Both runs of a kernel that writes `values` and leaves the elements of `unwritten` alone.
PoisonedRuns runs(const std::vector<float>& values, const std::vector<std::size_t>& unwritten = {},
                  double tolerance = 0.01) {
  PoisonedRuns made{.nan = {output(Dtype::f32, values, tolerance)},
                    .huge = {output(Dtype::f32, values, tolerance)}};
  for (const std::size_t index : unwritten) {
    std::memset(made.nan[0].bytes.data() + index * 4, 0xff, 4);
    std::memset(made.huge[0].bytes.data() + index * 4, 0x5a, 4);
  }
  return made;
}

}  // namespace

TEST_CASE("outputs within the tolerance agree, others are named with their place", "[cpu][tuner]") {
  const auto reference = runs({1, -2, 4, 0});
  CHECK_FALSE(disagreement(reference, reference));
  CHECK_FALSE(disagreement(reference, runs({1.03f, -2.04f, 4.06f, 0.02f})));
  const auto found = disagreement(reference, runs({1, -2, 4.08f, 0}));
  REQUIRE(found);
  CHECK_THAT(*found, Catch::StartsWith("out[2] is 4.08, the reference has 4 "));
}

TEST_CASE("an element that is not written, or must not be, is a disagreement", "[cpu][tuner]") {
  const auto reference = runs({1, 2, 3}, {1});
  CHECK_FALSE(disagreement(reference, runs({1, 9, 3}, {1})));
  CHECK(disagreement(reference, runs({1, 2, 3}, {0, 1})) == "out[0] is not written");
  CHECK(disagreement(reference, runs({1, 2, 3})) == "out[1] is written, and must not be");
}

TEST_CASE("NaN and infinities stand where the reference has them", "[cpu][tuner]") {
  const auto reference = runs({kNan, -kInf, 1});
  CHECK_FALSE(disagreement(reference, runs({kNan, -kInf, 1})));
  CHECK(disagreement(reference, runs({1, -kInf, 1})));
  CHECK(disagreement(reference, runs({kNan, kInf, 1})));
  CHECK(disagreement(reference, runs({kNan, -3e38f, 1})));
  CHECK(disagreement(reference, runs({kNan, -kInf, kNan})));
}

TEST_CASE("what was in the buffer before must not show", "[cpu][tuner]") {
  const auto reference = runs({1, 2, 3});
  auto leaking = reference;  // adds to the buffer instead of setting it, in one of the runs
  const float sum = 1.5e16f + 2;
  std::memcpy(leaking.huge[0].bytes.data() + 4, &sum, 4);
  CHECK_THAT(*disagreement(reference, leaking), Catch::StartsWith("out[1] is 1.5e+16"));

  const auto exact = runs({1, 2, 3}, {}, 0);
  auto shaky = exact;
  const float close = 2.0000002f;
  std::memcpy(shaky.huge[0].bytes.data() + 4, &close, 4);
  CHECK(disagreement(exact, shaky) == "out[1] depends on what was in the buffer before");
}

TEST_CASE("one block scale that is off by one exponent is caught", "[cpu][tuner]") {
  // Linears of 4096 columns in blocks of 128, as block-scaled kernels sum them.
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> exact;
  std::vector<float> rounded;
  std::vector<float> off;
  for (int row = 0; row < 64; ++row) {
    float sum = 0;
    float wrong = 0;
    for (int block = 0; block < 32; ++block) {
      float part = 0;
      for (int i = 0; i < 128; ++i)
        part += normal(random) * normal(random);
      sum += part;
      wrong += block == 17 ? 2 * part : part;
    }
    exact.push_back(sum);
    rounded.push_back(sum * 1.002f);  // another order of summing and bf16's rounding
    off.push_back(wrong);
  }
  CHECK_FALSE(disagreement(runs(exact), runs(rounded)));
  CHECK(disagreement(runs(exact), runs(off)));
}

TEST_CASE("bf16 is compared as numbers, codes to the bit, sizes first", "[cpu][tuner]") {
  const auto both = [](const KernelOutput& one) {
    return PoisonedRuns{.nan = {one}, .huge = {one}};
  };
  // 1.0 and its next bf16 neighbour, 1.0078125.
  const auto bf16 = [&](std::uint16_t bits) {
    return both(output(Dtype::bf16, std::vector<std::uint16_t>{bits, 0x3f80}, 0.01));
  };
  CHECK_FALSE(disagreement(bf16(0x3f80), bf16(0x3f81)));
  CHECK(disagreement(bf16(0x3f80), bf16(0x3f83)));
  const auto codes = [&](std::uint8_t code) {
    return both(output(Dtype::f8_e4m3, std::vector<std::uint8_t>{7, code}, 0.5));
  };
  CHECK_FALSE(disagreement(codes(1), codes(1)));
  CHECK(disagreement(codes(1), codes(2)) == "out[1] is not the reference's");
  CHECK(disagreement(bf16(0), codes(0)) == "out has another size or type than the reference's");
  CHECK(disagreement(bf16(0), {}) == "it has another number of outputs than the reference");
}
