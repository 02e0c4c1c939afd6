#include "tests/support/hyper_connection_check.hpp"

#include "kernel_templates/fp8_linear.args.h"
#include "src/reference/hyper_connection.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rms_norm.hpp"
#include "tests/support/kernel_check.hpp"

namespace ingot::test {
namespace {

using kernels::HC_MIXES;
using kernels::HC_STREAMS;

constexpr int kNanToken = 2, kZeroToken = 4;

ModelConfig config_of(int hidden) {
  ModelConfig config;
  config.hidden_size = hidden;
  config.hc_mult = HC_STREAMS;
  config.hc_sinkhorn_iters = 20;
  config.hc_eps = 1e-6F;
  config.rms_norm_eps = 1e-6F;
  return config;
}

/// Inputs of both kernels: streams in front of a sublayer, its output, the mix that joins them.
struct Streams {
  std::vector<std::uint16_t> x, f;
  std::vector<float> post, comb;
};
Streams random_streams(int tokens, int hidden) {
  const auto n = static_cast<std::size_t>(tokens), h = static_cast<std::size_t>(hidden);
  Streams s{random_bf16(n * HC_STREAMS * h, 3), random_bf16(n * h, 5),
            random_floats(n * HC_STREAMS, 0.5F, 7), random_floats(n * 16, 0.5F, 11)};
  if (tokens > kNanToken) s.x[kNanToken * HC_STREAMS * h + h + 3] = 0x7fc0;
  if (tokens > kZeroToken) {
    std::fill_n(s.x.begin() + static_cast<std::ptrdiff_t>(kZeroToken * HC_STREAMS * h),
                HC_STREAMS * h, std::uint16_t{0});
    std::fill_n(s.f.begin() + static_cast<std::ptrdiff_t>(kZeroToken * h), h, std::uint16_t{0});
  }
  return s;
}
/// The streams behind the sublayer, by the reference.
std::vector<float> expanded(reference::ThreadPool& pool, const ModelConfig& config,
                            const Streams& in) {
  auto streams = bf16_values(in.x);
  reference::HyperMix mix;
  mix.post = in.post;
  mix.comb = in.comb;
  reference::hyper_expand(pool, config, mix, bf16_values(in.f), streams);
  return streams;
}

/// The quantised tiles are what the reference makes of the bf16 output, to the bit.
void check_codes(const std::vector<std::uint16_t>& out, int tokens, int hidden, int code_rows,
                 const std::vector<std::uint8_t>& codes, const std::vector<float>& scales) {
  for (int token = 0; token < tokens; ++token) {
    for (int k = 0; k < hidden / 128; ++k) {
      const auto line = static_cast<std::size_t>(k * code_rows + token);
      std::vector<float> group;
      bool nan = false;
      for (int i = 0; i < 128; ++i) {
        const auto bits = out[static_cast<std::size_t>(token * hidden + k * 128 + i)];
        group.push_back(reference::bf16_value(bits));
        nan |= group.back() != group.back();
      }
      CAPTURE(token, k);
      if (nan) {
        REQUIRE(scales[line] != scales[line]);
        continue;
      }
      REQUIRE(scales[line] == reference::pow2(reference::act_quant_exponent(group)));
      std::vector<std::uint8_t> wanted(128), exponent(1);
      reference::act_quant_bytes(group, 128, wanted, exponent);
      bool same = true;
      for (int i = 0; i < 128; ++i) {
        const auto at = (line - static_cast<std::size_t>(token % 8)) * 128 +
                        static_cast<std::size_t>(kernels::fp8_tile_offset(token % 8, i));
        same &= codes[at] == wanted[static_cast<std::size_t>(i)];
      }
      REQUIRE(same);
    }
  }
}

template <class Family>
int check_before(KernelTarget& target, const kernels::HcPreProblem& problem,
                 const typename Family::Params& params) {
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens);
  const int hidden = problem.hidden, tokens = problem.tokens;
  const auto n = static_cast<std::size_t>(tokens), h = static_cast<std::size_t>(hidden);
  const int mixes = problem.head ? HC_STREAMS : HC_MIXES;
  const auto width = static_cast<std::size_t>(HC_STREAMS * hidden);
  const ModelConfig config = config_of(hidden);
  reference::ThreadPool pool(1);

  const Streams in = random_streams(tokens, hidden);
  const auto fn = random_floats(static_cast<std::size_t>(mixes) * width, 0.02F, 13);
  reference::HyperConnectionWeights weights;
  weights.fn = {.format = reference::WeightFormat::f32,
                .data = reinterpret_cast<const std::byte*>(fn.data()),
                .stored_columns = static_cast<std::int64_t>(width),
                .rows = mixes,
                .columns = static_cast<int>(width)};
  weights.base = random_floats(static_cast<std::size_t>(mixes), 1.0F, 17);
  weights.scale = problem.head ? std::vector<float>{0.7F} : std::vector<float>{0.7F, 1.3F, 2.1F};
  const auto norm = random_bf16(h, 19);

  auto streams = problem.after_sublayer ? expanded(pool, config, in) : bf16_values(in.x);
  const auto new_streams = streams;
  std::vector<float> wanted(n * h);
  reference::HyperMix mix;
  if (problem.head) {
    reference::hyper_head(pool, config, weights, streams, wanted);
  } else {
    mix = reference::hyper_mix(pool, config, weights, streams);
    reference::hyper_collapse(pool, config, mix.pre, streams, wanted);
  }
  reference::rms_norm(pool, wanted, bf16_values(norm), config.rms_norm_eps);

  const int code_rows = (tokens + 3) / 4 * 4;
  const std::size_t line_count = (h / 128) * static_cast<std::size_t>(code_rows);
  std::size_t workspace_words = 0;
  if constexpr (requires { Family::workspace_bytes(problem, params); })
    workspace_words = static_cast<std::size_t>(Family::workspace_bytes(problem, params) / 4);
  kernels::HcPreArgs args{};
  args.streams = target.place_as<const kernels::bf16>(in.x);
  args.sublayer = target.place_as<const kernels::bf16>(in.f);
  args.fn = target.place_as<const float>(fn);
  args.base = target.place_as<const float>(weights.base);
  args.scale = target.place_as<const float>(weights.scale);
  args.norm = target.place_as<const kernels::bf16>(norm);
  args.workspace =
      target.place_as<std::uint32_t>(std::vector<std::uint32_t>(workspace_words, 0xffffffffU));
  args.tokens = tokens;
  args.code_rows = code_rows;
  args.sinkhorn = config.hc_sinkhorn_iters;
  args.norm_epsilon = config.rms_norm_eps;
  args.hc_epsilon = config.hc_eps;

  const auto row_scale_stride = static_cast<std::size_t>(kernels::act_quant_scale_stride(hidden));
  struct Outputs {
    std::vector<std::uint16_t> streams, out;
    std::vector<float> post, comb, scales, row_scales;
    std::vector<std::uint8_t> codes, row_codes;
    bool operator==(const Outputs&) const = default;
  };
  const auto run = [&] {
    const auto poisoned = [&](std::size_t count) {
      return target.place_as<kernels::bf16>(
          std::vector<std::uint16_t>(count + kGuard, kPoisonBf16));
    };
    args.streams_out = poisoned(in.x.size());
    args.out = poisoned(n * h);
    // The mix of the sublayer before is overwritten by that of the next, where there is one.
    auto post = in.post, comb = in.comb;
    post.resize(n * HC_STREAMS + kGuard, kPoisonFloat);
    comb.resize(n * 16 + kGuard, kPoisonFloat);
    args.post = target.place_as<float>(post);
    args.comb = target.place_as<float>(comb);
    args.post_in = args.post;
    args.comb_in = args.comb;
    args.codes = target.place_as<kernels::fp8_e4m3>(
        std::vector<std::uint8_t>(line_count * 128 + 7 * 128 + kGuard, 0xee));
    args.code_scale = target.place_as<float>(std::vector<float>(line_count + kGuard, kPoisonFloat));
    args.row_codes =
        target.place_as<kernels::fp8_e4m3>(std::vector<std::uint8_t>(n * h + kGuard, 0xee));
    args.row_scale =
        target.place_as<float>(std::vector<float>(n * row_scale_stride + kGuard, kPoisonFloat));
    target.run(variant, Family::launch_shape(problem, params, target.limits()), &args);
    return Outputs{target.fetch_as<std::uint16_t>(args.streams_out, in.x.size() + kGuard),
                   target.fetch_as<std::uint16_t>(args.out, n * h + kGuard),
                   target.fetch_as<float>(args.post, post.size()),
                   target.fetch_as<float>(args.comb, comb.size()),
                   target.fetch_as<float>(args.code_scale, line_count + kGuard),
                   target.fetch_as<float>(args.row_scale, n * row_scale_stride + kGuard),
                   target.fetch_as<std::uint8_t>(args.codes, line_count * 128 + 7 * 128 + kGuard),
                   target.fetch_as<std::uint8_t>(args.row_codes, n * h + kGuard)};
  };
  const Outputs first = run();
  const Outputs second = run();
  REQUIRE(first.out == second.out);
  REQUIRE(first.streams == second.streams);
  REQUIRE(first.codes == second.codes);
  for (const auto word : target.fetch_as<std::uint32_t>(args.workspace, workspace_words))
    REQUIRE(word == 0xffffffffU);

  // One rounding of u tipped, then one of the norm; the four streams may cancel in u, whose rows
  // the norm brings to about 1.
  // Where the streams are made here, one of them that tips by a unit moves u by as much.
  int worst = compare_bf16(first.out, wanted, problem.after_sublayer ? 4e-2F : 1e-4F);
  REQUIRE(worst <= 2);
  if (problem.after_sublayer) {
    const int of_streams = compare_bf16(first.streams, new_streams, 1e-5F);  // sums that cancel
    REQUIRE(of_streams <= 1);
  } else {
    REQUIRE(std::all_of(first.streams.begin(), first.streams.end(),
                        [](std::uint16_t bits) { return bits == kPoisonBf16; }));
  }
  if (problem.head) {
    REQUIRE(std::equal(in.post.begin(), in.post.end(), first.post.begin()));
    REQUIRE(std::equal(in.comb.begin(), in.comb.end(), first.comb.begin()));
  } else {
    const float tipped = problem.after_sublayer ? 10.0F : 1.0F;  // by streams a unit away
    compare_floats(first.post, mix.post, tipped * 1e-4F);        // a small gate is all exponent
    compare_floats(first.comb, mix.comb, tipped * 3e-4F);
  }
  if (problem.quantize) {
    check_codes(first.out, tokens, hidden, code_rows, first.codes, first.scales);
    bool same = true;
    for (int token = 0; token < tokens; ++token) {
      for (int column = 0; column < hidden; ++column) {
        const int line = column / 128 * code_rows + token;
        const auto at = static_cast<std::size_t>((line - token % 8) * 128 +
                                                 kernels::fp8_tile_offset(token % 8, column % 128));
        const auto row = static_cast<std::size_t>(token);
        same &= first.row_codes[row * h + static_cast<std::size_t>(column)] == first.codes[at];
        const float scale =
            first.row_scales[row * row_scale_stride + static_cast<std::size_t>(column / 128)];
        const float tiled = first.scales[static_cast<std::size_t>(line)];
        same &= scale == tiled || (scale != scale && tiled != tiled);
      }
    }
    REQUIRE(same);
    REQUIRE(std::all_of(first.row_codes.begin() + static_cast<std::ptrdiff_t>(n * h),
                        first.row_codes.end(), [](std::uint8_t byte) { return byte == 0xee; }));
  } else {
    for (const auto* codes : {&first.codes, &first.row_codes})
      REQUIRE(std::all_of(codes->begin(), codes->end(),
                          [](std::uint8_t byte) { return byte == 0xee; }));
  }
  return worst;
}

}  // namespace

int check_hc_pre(KernelTarget& target, const kernels::HcPreProblem& problem,
                 const kernels::HcPre::Params& params) {
  return check_before<kernels::HcPre>(target, problem, params);
}

int check_hc_pre(KernelTarget& target, const kernels::HcPreProblem& problem,
                 const kernels::HcPreWide::Params& params) {
  return check_before<kernels::HcPreWide>(target, problem, params);
}

int check_hc_post(KernelTarget& target, const kernels::HcPost::Problem& problem,
                  const kernels::HcPost::Params& params) {
  using Family = kernels::HcPost;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens);
  reference::ThreadPool pool(1);
  const Streams in = random_streams(problem.tokens, problem.hidden);
  const auto wanted = expanded(pool, config_of(problem.hidden), in);
  kernels::HcPostArgs args{};
  args.sublayer = target.place_as<const kernels::bf16>(in.f);
  args.post = target.place_as<const float>(in.post);
  args.comb = target.place_as<const float>(in.comb);
  args.tokens = problem.tokens;
  auto streams = in.x;
  streams.resize(streams.size() + kGuard, kPoisonBf16);
  std::vector<std::uint16_t> in_place;
  for (const bool same : {true, false}) {
    args.streams = target.place_as<const kernels::bf16>(streams);
    args.out = same ? const_cast<kernels::bf16*>(args.streams)
                    : target.place_as<kernels::bf16>(
                          std::vector<std::uint16_t>(streams.size(), kPoisonBf16));
    target.run(variant, Family::launch_shape(problem, params), &args);
    const auto got = target.fetch_as<std::uint16_t>(args.out, streams.size());
    if (same)
      in_place = got;
    else
      REQUIRE(got == in_place);
  }
  const int worst = compare_bf16(in_place, wanted);
  REQUIRE(worst <= 1);
  return worst;
}

}  // namespace ingot::test
