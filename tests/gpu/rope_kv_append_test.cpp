#include "kernel_templates/rope_kv_append.space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "src/reference/numerics.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"

using namespace ingot;
using kernels::RopeKvAppend;

namespace {

constexpr int kDims = kernels::KV_DIMS;
constexpr int kRope = kernels::KV_ROPE_DIMS;
constexpr int kQuant = kernels::KV_QUANT_DIMS;
constexpr std::uint8_t kPoison = 0xee;
constexpr std::size_t kGuard = 8;  // elements behind what is written

/// Frequencies of both rope tables' kind: from 1 down to 10000^-1 and less.
std::vector<float> frequencies() {
  std::vector<float> all;
  for (int i = 0; i < kRope / 2; ++i)
    all.push_back(1.0F / std::pow(10000.0F, static_cast<float>(2 * i) / kRope));
  return all;
}

/// The packed entry by the definition: 448 codes, 64 bf16, then 7 scale bytes and a zero.
std::vector<std::uint8_t> reference_entry(std::span<const std::uint16_t> kv, int position,
                                          const std::vector<float>& table) {
  std::vector<float> values;
  for (const auto bits : kv)
    values.push_back(reference::bf16_value(bits));
  std::vector<std::uint8_t> entry(kernels::KV_DATA_BYTES + kernels::KV_SCALE_BYTES, 0);
  const std::span<float> quantized(values.data(), kQuant);
  reference::act_quant_bytes(quantized, reference::kKvGroup, std::span(entry).first(kQuant),
                             std::span(entry).subspan(kernels::KV_DATA_BYTES, 7));
  for (std::size_t pair = 0; pair < kRope / 2; ++pair) {
    const float angle = static_cast<float>(position) * table[pair];
    const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
    const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
    const float a = values[kQuant + 2 * pair];
    const float b = values[kQuant + 2 * pair + 1];
    const std::uint16_t turned[2] = {reference::bf16_bits(a * cosine - b * sine),
                                     reference::bf16_bits(a * sine + b * cosine)};
    std::memcpy(&entry[kQuant + 4 * pair], turned, 4);
  }
  return entry;
}

/// A norm by the definition, in double.
std::vector<std::uint16_t> normalized(std::span<const std::uint16_t> kv,
                                      std::span<const std::uint16_t> weight) {
  double squares = 0;
  for (const auto bits : kv)
    squares += std::pow(static_cast<double>(reference::bf16_value(bits)), 2);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(kv.size()) + 1e-6);
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i < kv.size(); ++i) {
    out.push_back(reference::bf16_bits(static_cast<float>(reference::bf16_value(weight[i]) *
                                                          (reference::bf16_value(kv[i]) * scale))));
  }
  return out;
}

/// Where the bytes of entry `slot` lie in the pool: data, then scales.
std::pair<std::size_t, std::size_t> places(const RopeKvAppend::Problem& problem, int slot) {
  const auto page = static_cast<std::size_t>(slot / problem.page_entries) *
                    static_cast<std::size_t>(problem.page_bytes);
  const auto place = static_cast<std::size_t>(slot % problem.page_entries);
  const std::size_t data = page + place * static_cast<std::size_t>(problem.entry_stride);
  const std::size_t scales =
      problem.scales_beside
          ? data + kernels::KV_DATA_BYTES
          : page + static_cast<std::size_t>(problem.page_entries * problem.entry_stride) +
                place * kernels::KV_SCALE_BYTES;
  return {data, scales};
}

struct Tokens {
  int count = 0;
  std::vector<std::uint16_t> kv;
  std::vector<int> positions;
  std::vector<int> slots;
};

constexpr int kPages = 9;

/// Ordinary rows and special ones: zeros, below the quantiser's floor, huge, NaN, infinity; slots
/// in the last page, neighbours, and skipped tokens; positions up to a million.
Tokens made_tokens(const RopeKvAppend::Problem& problem) {
  std::mt19937 random(17);
  Tokens tokens{.count = 37, .kv = test::random_bf16(37 * kDims, 23), .positions = {}, .slots = {}};
  const auto row = [&](std::size_t token) { return &tokens.kv[token * kDims]; };
  for (std::size_t i = 0; i < kDims; ++i) {
    row(1)[i] = 0;
    row(2)[i] = reference::bf16_bits(1e-5F * static_cast<float>(i % 7));
    row(3)[i] = reference::bf16_bits(std::ldexp(1.0F + static_cast<float>(i % 5), 100));
    row(4)[i] = reference::bf16_bits(448.0F * (i % 64 == 0 ? 1.0F : 0.01F));
  }
  row(5)[70] = 0x7fc0;   // NaN in a quantised group
  row(5)[500] = 0x7fc0;  // and in a rope pair
  row(6)[447] = 0x7f80;  // infinity
  for (int token = 0; token < tokens.count; ++token) {
    const int positions[] = {0, 1, 127, 65535, 1'000'000, 1'048'575};
    tokens.positions.push_back(token < 6 ? positions[token]
                                         : static_cast<int>(random() % 1'048'576));
    tokens.slots.push_back(token);
  }
  std::shuffle(tokens.slots.begin(), tokens.slots.end(), random);
  const int entries = kPages * problem.page_entries;
  for (int& slot : tokens.slots)
    slot = slot < entries ? slot : -1;
  tokens.slots[10] = -1;
  tokens.slots[36] = -1;
  // The very last entry of the pool, unless a token has it already.
  if (std::find(tokens.slots.begin(), tokens.slots.end(), entries - 1) == tokens.slots.end())
    tokens.slots[0] = entries - 1;
  return tokens;
}

}  // namespace

TEST_CASE("rope_kv_append writes the reference's entries, to the bit",
          "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  const auto table = frequencies();
  const auto table_device = test::to_device(context, stream, table);
  const auto weight = test::random_bf16(kDims, 29);
  const auto weight_device = test::to_device(context, stream, weight);
  int variants = 0;
  int tipped = 0;
  for (auto problem : RopeKvAppend::sample_problems()) {
    const Tokens tokens = made_tokens(problem);
    problem.tokens = tokens.count;
    const auto kv = test::to_device(context, stream, tokens.kv);
    const auto positions = test::to_device(context, stream, tokens.positions);
    const auto slots = test::to_device(context, stream, tokens.slots);
    const auto all = RopeKvAppend::space(problem, limits).candidates();
    std::vector<jit::Variant> erased;
    for (const auto& params : all)
      erased.push_back({std::string(RopeKvAppend::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, erased);
    for (std::size_t v = 0; v < all.size(); ++v) {
      const auto& params = all[v];
      const jit::Variant& variant = erased[v];
      CAPTURE(jit::describe(variant));
      const auto pool = cu::DeviceBuffer::allocate(
          context, static_cast<std::size_t>(kPages) * static_cast<std::size_t>(problem.page_bytes));
      pool.fill_bytes(stream, kPoison);
      const auto width = static_cast<std::size_t>(problem.latent);
      const auto latents =
          test::random_bf16(width * static_cast<std::size_t>(tokens.count) + kGuard, 31);
      const auto latent = test::to_device(context, stream, latents);
      const auto latent_norm = test::random_bf16(width + kGuard, 37);
      const auto latent_weight = test::to_device(context, stream, latent_norm);
      const kernels::RopeKvAppendArgs args{.kv = kv.as<kernels::bf16>(),
                                           .norm_weight = weight_device.as<kernels::bf16>(),
                                           .frequencies = table_device.as<float>(),
                                           .positions = positions.as<int>(),
                                           .slots = slots.as<int>(),
                                           .pool = pool.as<kernels::u8>(),
                                           .latent = latent.as<kernels::bf16>(),
                                           .latent_weight = latent_weight.as<kernels::bf16>(),
                                           .latent_out = latent.as<kernels::bf16>(),
                                           .tokens = tokens.count,
                                           .kv_stride = kDims,
                                           .epsilon = 1e-6F};
      loaded[v].launch(stream, RopeKvAppend::launch_shape(problem, params), args);
      auto bytes = test::to_host<std::uint8_t>(stream, pool);
      const auto normed = test::to_host<std::uint16_t>(stream, latent);
      for (std::size_t token = 0; token < static_cast<std::size_t>(tokens.count) && width > 0;
           ++token) {
        const auto expected =
            normalized(std::span(latents).subspan(token * width, width), latent_norm);
        for (std::size_t i = 0; i < width; ++i)
          REQUIRE(test::bf16_distance(normed[token * width + i], expected[i]) <= 1);
      }
      REQUIRE(std::equal(latents.end() - kGuard, latents.end(), normed.end() - kGuard));
      for (int token = 0; token < tokens.count; ++token) {
        const int slot = tokens.slots[static_cast<std::size_t>(token)];
        if (slot < 0) continue;
        const auto row =
            std::span(tokens.kv).subspan(static_cast<std::size_t>(token) * kDims, kDims);
        // With the norm, rows of NaN and infinity have no finite values left to compare.
        if (problem.normalize && (token == 5 || token == 6 || token == 3)) {
          const auto [data, scales] = places(problem, slot);
          std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(data), kernels::KV_DATA_BYTES,
                      kPoison);
          std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(scales), 8, kPoison);
          continue;
        }
        const auto expected = reference_entry(
            problem.normalize ? std::span<const std::uint16_t>(normalized(row, weight)) : row,
            tokens.positions[static_cast<std::size_t>(token)], table);
        const auto [data, scales] = places(problem, slot);
        int differing = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t at =
              i < kernels::KV_DATA_BYTES ? data + i : scales + i - kernels::KV_DATA_BYTES;
          if (i >= kQuant && i < kernels::KV_DATA_BYTES) {  // bf16: any NaN for a NaN
            if (i % 2 != 0) continue;
            std::uint16_t got = 0;
            std::uint16_t wanted = 0;
            std::memcpy(&got, &bytes[at], 2);
            std::memcpy(&wanted, &expected[i], 2);
            const int distance = test::bf16_distance(got, wanted);
            if (distance != 0) ++differing;
            bytes[at] = bytes[at + 1] = kPoison;
            continue;
          }
          if (bytes[at] != expected[i]) ++differing;
          bytes[at] = kPoison;
        }
        CAPTURE(token, slot, differing);
        if (problem.normalize) {
          REQUIRE(differing <= 6);  // roundings tipped by the order of a sum of 512 squares
          tipped += differing;
        } else {
          REQUIRE(differing == 0);
        }
      }
      // Nothing else in the pool was touched: skipped slots, other entries, padding.
      REQUIRE(std::count(bytes.begin(), bytes.end(), kPoison) ==
              static_cast<std::ptrdiff_t>(bytes.size()));
      ++variants;
    }
  }
  fmt::print("rope_kv_append: {} variants equal the reference; with the norm {} elements tipped\n",
             variants, tipped);
}
