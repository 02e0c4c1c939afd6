#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/emulator/moe_decode_variants.hpp"

using namespace ingot::test;
using emulator::MoeDecodeVariant;

namespace {

constexpr double kTolerance = 2e-3, kRowTolerance = 4e-3;

void check(const MoeDecodeVariant& variant, const MoeExperts& experts, int blocks, int launches,
           std::uint64_t seed) {
  const auto expected = experts.reference(variant.round_experts);
  const auto got = variant.run(experts, blocks, launches, seed);
  const auto difference = compare_moe(got, expected, experts.shape.hidden);
  CAPTURE(difference.relative, difference.worst_row);
  REQUIRE_FALSE(difference.nan_differs);
  REQUIRE(difference.relative <= kTolerance);
  REQUIRE(difference.worst_row <= kRowTolerance);
}

/// The variant's shape with as many of its tokens as `tokens`, at most.
MoeShape with_tokens(const MoeDecodeVariant& variant, int tokens) {
  MoeShape shape = variant.shape;
  shape.tokens = std::min(shape.tokens, tokens);
  return shape;
}

}  // namespace

TEST_CASE("moe_decode agrees with the reference, run thread by thread", "[cpu][kernel]") {
  for (const MoeDecodeVariant& variant : emulator::moe_decode_variants()) {
    unsigned seed = 0;
    for (const int tokens : {1, 5, 17}) {
      ++seed;
      if (tokens > variant.shape.tokens) continue;
      CAPTURE(variant.name, tokens);
      // Three blocks share strips and leave an odd number of output strips to each.
      check(variant, random_moe(with_tokens(variant, tokens), MoeRouting::uniform, 5, seed), 3,
            tokens == 1 ? 2 : 1, seed);
    }
  }
}

TEST_CASE("moe_decode takes any routing", "[cpu][kernel]") {
  for (const MoeDecodeVariant& variant : emulator::moe_decode_variants()) {
    unsigned seed = 20;
    for (const auto routing : {MoeRouting::same, MoeRouting::leave_out, MoeRouting::first_full}) {
      CAPTURE(variant.name, static_cast<int>(routing));
      ++seed;
      check(variant, random_moe(with_tokens(variant, 10), routing, 5, seed), 2, 1, seed);
    }
  }
}

TEST_CASE("moe_decode multiplies scales that lie 2^20 apart, and keeps NaN in its token",
          "[cpu][kernel]") {
  for (const MoeDecodeVariant& variant : emulator::moe_decode_variants()) {
    CAPTURE(variant.name);
    auto experts = random_moe(with_tokens(variant, 3), MoeRouting::leave_out, 21, 40);
    poison(experts, experts.shape.tokens / 2, 200);
    check(variant, experts, 2, 1, 2);
  }
}

TEST_CASE("moe_decode gives a token the same bits in any batch where strips stay whole",
          "[cpu][kernel]") {
  for (const MoeDecodeVariant& variant : emulator::moe_decode_variants()) {
    if (!variant.whole_strips) continue;
    CAPTURE(variant.name);
    const auto batch = random_moe(with_tokens(variant, 6), MoeRouting::uniform, 5, 50);
    const auto together = variant.run(batch, 3, 1, 1);
    MoeExperts alone = batch;
    const auto hidden = static_cast<std::size_t>(batch.shape.hidden);
    const auto topk = static_cast<std::size_t>(batch.shape.topk);
    const std::size_t token = 3;
    const auto take = [&](auto& values, std::size_t width) {
      values = {values.begin() + static_cast<std::ptrdiff_t>(token * width),
                values.begin() + static_cast<std::ptrdiff_t>((token + 1) * width)};
    };
    alone.shape.tokens = 1;
    take(alone.x, hidden);
    take(alone.codes, hidden);
    take(alone.scales, hidden / 128);
    take(alone.ids, topk);
    take(alone.weights, topk);
    const auto single = variant.run(alone, 3, 1, 2);
    CHECK(std::memcmp(single.data(), &together[token * hidden], hidden * 4) == 0);
  }
}
