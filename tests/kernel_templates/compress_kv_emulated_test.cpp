#include <catch2/catch.hpp>

#include "tests/support/emulator/compress_kv_variants.hpp"

using namespace ingot::test;
using emulator::CompressKvVariant;

namespace {

std::vector<int> lengths_for(const CompressKvVariant& variant) {
  return variant.layout.ratio == 4 ? std::vector<int>{61, 24, 39, 3}
                                   : std::vector<int>{400, 260, 129, 5};
}

CompressLaunch launch_of(const CompressKvVariant& variant, std::uint64_t seed = 1) {
  return
      [launch = variant.launch, seed](const CompressData& data, const CompressStep& step,
                                      CompressMemory& memory) { launch(data, step, memory, seed); };
}

}  // namespace

TEST_CASE("the compressor template makes the reference's entries, run thread by thread",
          "[cpu][kernel]") {
  for (const CompressKvVariant& variant : emulator::compress_kv_variants()) {
    const CompressData data(variant.layout, lengths_for(variant), 5);
    const auto memory =
        compress_in_chunks(data, launch_of(variant), [](int step) { return 7 + 90 * step; });
    const auto difference = data.compare(memory.pool);
    CAPTURE(variant.name, difference.share);
    REQUIRE(difference.problem.empty());
    REQUIRE_FALSE(difference.beyond_step);
    REQUIRE(difference.share < 0.002);
  }
}

TEST_CASE("compressed entries have the same bits however their tokens came", "[cpu][kernel]") {
  for (const CompressKvVariant& variant : emulator::compress_kv_variants()) {
    CAPTURE(variant.name);
    const CompressData data(variant.layout, lengths_for(variant), 6);
    const auto whole = compress_in_chunks(data, launch_of(variant), [](int) { return 1000; });
    const auto mixed =
        compress_in_chunks(data, launch_of(variant, 2), [](int step) { return 1 + step * 5 % 13; });
    const auto single = compress_in_chunks(data, launch_of(variant, 3), [](int) { return 1; });
    REQUIRE(mixed.pool == whole.pool);
    REQUIRE(single.pool == whole.pool);
  }
}

TEST_CASE("tokens that were taken back leave no trace in compressed entries", "[cpu][kernel]") {
  for (const CompressKvVariant& variant : emulator::compress_kv_variants()) {
    CAPTURE(variant.name);
    const CompressData data(variant.layout, lengths_for(variant), 7);
    const auto straight = compress_in_chunks(data, launch_of(variant), [](int) { return 40; });
    const auto rolled = compress_with_rollbacks(data, launch_of(variant));
    REQUIRE(rolled.pool == straight.pool);
  }
}
