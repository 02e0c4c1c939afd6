#include "tests/support/row_kernels_check.hpp"

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

}  // namespace ingot::test
