#include "tests/support/row_kernels_check.hpp"

#include <limits>
#include <utility>

#include "kernel_templates/fp8_linear.args.h"
#include "src/reference/moe.hpp"
#include "src/reference/rms_norm.hpp"
#include "src/reference/rope.hpp"
#include "tests/support/kernel_check.hpp"

namespace ingot::test {

void check_embedding(KernelTarget& target, const kernels::Embedding::Problem& problem,
                     const kernels::Embedding::Params& params) {
  using Family = kernels::Embedding;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant));
  constexpr int kFirst = 40, kRows = 13;
  const std::vector<int> special{kFirst,  kFirst + kRows - 1, kFirst - 1, kFirst + kRows, 0, -1,
                                 1 << 30, -2147483647 - 1};
  std::vector<int> ids;
  for (int i = 0; i < problem.tokens; ++i)
    ids.push_back(i < std::ssize(special) ? special[static_cast<std::size_t>(i)]
                                          : kFirst + i * 7 % kRows);
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  const auto table = random_bf16(kRows * hidden, 3);
  std::vector<std::uint16_t> wanted;
  for (const int id : ids) {
    for (int s = 0; s < problem.streams; ++s) {
      const std::int64_t row = std::int64_t{id} - kFirst;
      if (row < 0 || row >= kRows) {
        wanted.insert(wanted.end(), hidden, 0);
      } else {
        const auto from =
            table.begin() + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(hidden);
        wanted.insert(wanted.end(), from, from + static_cast<std::ptrdiff_t>(hidden));
      }
    }
  }
  wanted.insert(wanted.end(), kGuard, kPoisonBf16);
  kernels::EmbeddingArgs args{};
  args.ids = target.place_as<const int>(ids);
  args.table = target.place_as<const kernels::bf16>(table);
  args.out = target.place_as<kernels::bf16>(std::vector<std::uint16_t>(wanted.size(), kPoisonBf16));
  args.first_row = kFirst;
  args.rows = kRows;
  args.tokens = problem.tokens;
  target.run(variant, Family::launch_shape(problem, params), &args);
  REQUIRE(target.fetch_as<std::uint16_t>(args.out, wanted.size()) == wanted);
}

int check_q_norm_rope(KernelTarget& target, const kernels::QNormRope::Problem& problem,
                      const kernels::QNormRope::Params& params) {
  using Family = kernels::QNormRope;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.heads, problem.tokens);
  constexpr float kEpsilon = 1e-6F;
  const auto dims = static_cast<std::size_t>(problem.dims);
  const auto width = static_cast<std::size_t>(problem.heads) * dims;
  const std::size_t stride = width + 8;  // rows lie apart
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  auto q = random_bf16(tokens * stride, 5);
  for (std::size_t t = 0; t < tokens; ++t)
    std::fill_n(q.begin() + static_cast<std::ptrdiff_t>(t * stride + width), 8, kPoisonBf16);
  if (problem.heads > 2) {
    q[dims + 77] = 0x7fc0;
    std::fill_n(q.begin() + static_cast<std::ptrdiff_t>(2 * dims), dims, std::uint16_t{0});
  }
  std::vector<int> positions;
  std::vector<std::int64_t> wide;
  for (int t = 0; t < problem.tokens; ++t) {
    constexpr int kSome[] = {0, 1'048'575, 1, 65'537, 127};
    positions.push_back(kSome[t % 5]);
    wide.push_back(positions.back());
  }
  ModelConfig config;
  config.rope_dim = kernels::Q_ROPE_DIMS;
  config.compress_rope_theta = 160000;
  config.yarn_factor = 16;
  config.yarn_beta_fast = 32;
  config.yarn_beta_slow = 1;
  config.yarn_original_max_position = 65536;
  const auto frequencies = reference::rope_frequencies(config, 4);
  const reference::RopeAngles angles(frequencies, wide);

  kernels::QNormRopeArgs args{};
  args.frequencies = target.place_as<const float>(frequencies);
  args.positions = target.place_as<const int>(positions);
  args.heads = problem.heads;
  args.tokens = problem.tokens;
  args.q_stride = static_cast<int>(stride);
  args.epsilon = kEpsilon;
  const auto run = [&] {
    args.q = target.place_as<kernels::bf16>(q);
    target.run(variant, Family::launch_shape(problem, params), &args);
    return target.fetch_as<std::uint16_t>(args.q, q.size());
  };
  const auto got = run();
  REQUIRE(run() == got);
  int tipped = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < static_cast<std::size_t>(problem.heads); ++h) {
      const std::size_t at = t * stride + h * dims;
      std::vector<float> head;
      for (std::size_t i = 0; i < dims; ++i)
        head.push_back(reference::bf16_value(q[at + i]));
      reference::head_norm(head, kEpsilon);
      angles.rotate(t, head);
      int differing = 0, worst = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        const int distance = bf16_distance(got[at + i], reference::bf16_bits(head[i]));
        // A difference of large products may be small: there the last place says little.
        if (std::fabs(reference::bf16_value(got[at + i]) - head[i]) > 0.02F)
          worst = std::max(worst, distance);
        differing += distance != 0 ? 1 : 0;
      }
      CAPTURE(t, h, differing, worst);
      // All or nothing: the scale of the whole head is one unit off, or no element is.
      REQUIRE((differing == 0 || (worst <= 2 && differing > static_cast<int>(dims) / 4)));
      tipped += differing != 0 ? 1 : 0;
    }
    for (std::size_t i = width; i < stride; ++i)
      REQUIRE(got[t * stride + i] == kPoisonBf16);
  }
  REQUIRE(tipped <= 1 + problem.tokens * problem.heads / 50);
  return tipped;
}

int check_swiglu_quant(KernelTarget& target, const kernels::SwigluQuant::Problem& problem,
                       const kernels::SwigluQuant::Params& params, float limit) {
  using Family = kernels::SwigluQuant;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.inter, problem.tokens, limit);
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = NAN;
  constexpr std::uint8_t kPoisonCode = 0xee;
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const auto inter = static_cast<std::size_t>(problem.inter);
  const std::size_t groups = inter / 128, stride = inter + 8;
  const std::size_t rows = (tokens + 3) / 4 * 4;
  std::vector<std::uint16_t> gate(tokens * stride, kPoisonBf16), up = gate;
  const auto random_gate = random_floats(gate.size(), 4.0F, 23);
  const auto random_up = random_floats(up.size(), 6.0F, 29);
  // One in each group, behind a first group of none.
  const std::pair<float, float> special[] = {
      {1, 1},         {kNan, 1},        {1, kNan},        {kInfinity, 2}, {-kInfinity, 2},
      {2, kInfinity}, {2, -kInfinity},  {-200, 3},        {-89, 3e38F},   {3e38F, -3e38F},
      {0, kInfinity}, {-0.0F, -1e-30F}, {1e-30F, 1e-20F}, {12, -12},      {-12, 12}};
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t k = 0; k < groups; ++k) {
      const std::size_t group = t * groups + k, first = t * stride + k * 128;
      // Groups of everyday values, of tiny ones and of zeros.
      const float size = group % 7 == 5 ? 1e-6F : group % 7 == 6 ? 0.0F : 1.0F;
      for (std::size_t i = first; i < first + 128; ++i) {
        gate[i] = bf16_bits(random_gate[i] * size);
        up[i] = bf16_bits(random_up[i] * size);
      }
      const auto [g, u] = special[group % std::size(special)];
      gate[first + group * 37 % 128] = bf16_bits(g);
      up[first + group * 37 % 128] = bf16_bits(u);
    }
  }

  const std::vector<std::uint8_t> poison(groups * rows * 128 + kGuard, kPoisonCode);
  kernels::SwigluQuantArgs args{};
  args.gate = target.place_as<const kernels::bf16>(gate);
  args.up = target.place_as<const kernels::bf16>(up);
  args.codes = target.place_as<kernels::fp8_e4m3>(poison);
  args.scale = target.place_as<float>(std::vector<float>(groups * rows + kGuard, kPoisonFloat));
  args.limit = limit;
  args.tokens = problem.tokens;
  args.inter = problem.inter;
  args.stride = static_cast<int>(stride);
  args.rows = static_cast<int>(rows);
  Family::Problem bucket = problem;
  bucket.tokens += 5;
  target.run(variant, Family::launch_shape(bucket, params), &args);
  auto codes = target.fetch_as<std::uint8_t>(args.codes, poison.size());
  auto scales = target.fetch_as<float>(args.scale, groups * rows + kGuard);

  int tipped = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t k = 0; k < groups; ++k) {
      std::vector<float> wanted, by;
      for (std::size_t i = t * stride + k * 128; wanted.size() < 128; ++i) {
        wanted.push_back(reference::bf16_value(gate[i]));
        by.push_back(reference::bf16_value(up[i]));
      }
      reference::expert_activation(wanted, by, limit, 1.0F);
      const std::size_t line = k * rows + t;
      CAPTURE(t, k);
      const float scale = std::exchange(scales[line], kPoisonFloat);
      const bool nan = std::any_of(wanted.begin(), wanted.end(), [](float x) { return x != x; });
      REQUIRE(scale != kPoisonFloat);
      REQUIRE((scale != scale) == nan);
      float largest = 0;
      for (std::size_t i = 0; i < 128; ++i) {
        const auto at = static_cast<std::size_t>(
            kernels::fp8_tile_offset(static_cast<int>(t % 8), static_cast<int>(i)));
        const auto code = std::exchange(codes[(line - t % 8) * 128 + at], kPoisonCode);
        if (nan) continue;
        largest = std::max(largest, std::fabs(reference::e4m3_value(code)));
        const float got = scale * reference::e4m3_value(code);
        if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted[i])) continue;
        CAPTURE(i, got, wanted[i]);
        REQUIRE(std::fabs(got - wanted[i]) <= std::max(std::fabs(wanted[i]) / 8, scale * 0x1p-9F));
        ++tipped;
      }
      // No larger a scale than the group needs, or than 1e-4 would.
      REQUIRE((nan || largest >= 224.0F || scale == 0x1p-22F));
    }
  }
  REQUIRE(codes == poison);
  REQUIRE(scales == std::vector<float>(scales.size(), kPoisonFloat));
  REQUIRE(tipped <= 1 + problem.tokens * problem.inter / 1000);
  return tipped;
}

void check_expert_sum(KernelTarget& target, const kernels::ExpertSum::Problem& problem,
                      const kernels::ExpertSum::Params& params) {
  using Family = kernels::ExpertSum;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.hidden, problem.tokens);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto count =
      static_cast<std::size_t>(problem.tokens) * static_cast<std::size_t>(problem.hidden);
  auto routed = random_floats(count, 1.0F, 31);
  auto shared = random_bf16(count, 37);
  // The shared expert's values first; the last two are ties, to the even bf16 below and above.
  const std::pair<float, float> special[] = {
      {NAN, 1.0F},        {1.0F, NAN},    {kInfinity, -kInfinity}, {kInfinity, 1.0F},
      {1.0F, -kInfinity}, {-0.0F, -0.0F}, {1.0F, 0x1p-8F},         {1.0F, 0x1.8p-7F}};
  for (std::size_t i = 0; i < std::size(special); ++i) {
    shared[i * 5 % count] = bf16_bits(special[i].first);
    routed[i * 5 % count] = special[i].second;
  }
  std::vector<float> wanted;
  for (std::size_t i = 0; i < count; ++i)
    wanted.push_back(reference::bf16_round(routed[i] + reference::bf16_value(shared[i])));
  kernels::ExpertSumArgs args{};
  args.routed = target.place_as<const float>(routed);
  args.tokens = problem.tokens;
  args.hidden = problem.hidden;
  Family::Problem bucket = problem;
  bucket.tokens += 2;
  shared.insert(shared.end(), kGuard, kPoisonBf16);
  const auto placed = [&](const std::vector<std::uint16_t>& values) {
    return target.place_as<kernels::bf16>(values);
  };
  for (const bool in_place : {false, true}) {
    kernels::bf16* const from = placed(shared);
    args.shared = from;
    args.out = in_place ? from : placed(std::vector<std::uint16_t>(shared.size(), kPoisonBf16));
    target.run(variant, Family::launch_shape(bucket, params), &args);
    REQUIRE(compare_bf16(target.fetch_as<std::uint16_t>(args.out, shared.size()), wanted) == 0);
  }
}

}  // namespace ingot::test
