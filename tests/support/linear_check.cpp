#include "tests/support/linear_check.hpp"

#include <cstring>

#include "kernel_templates/fp8_weight_tiles.hpp"
#include "src/reference/linear.hpp"
#include "tests/support/kernel_check.hpp"

namespace ingot::test {
namespace {

constexpr int kNanToken = 2;
constexpr std::size_t kPadding = 8;  // elements between the rows of x and of the outputs

std::vector<std::uint16_t> random_input(int tokens, std::size_t stride) {
  auto x = random_bf16(static_cast<std::size_t>(tokens) * stride, 3);
  if (tokens > kNanToken) x[kNanToken * stride + 33] = 0x7fc0;
  return x;
}

/// Outputs of one weight: [tokens, rows] at a stride, and poison between and behind the rows.
void check_rows(const std::vector<float>& got, const std::vector<float>& wanted, std::size_t rows,
                std::size_t stride, float poison, float tolerance) {
  const std::size_t tokens = wanted.size() / rows;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < stride; ++i) {
      const float value = got[t * stride + i];
      const bool poisoned = std::memcmp(&value, &poison, 4) == 0;
      if (i >= rows) {
        if (!poisoned) FAIL("token " << t << " has " << value << " behind its " << rows << " rows");
        continue;
      }
      const float want = wanted[t * rows + i];
      const bool agrees =
          want != want ? value != value && !poisoned
                       : std::fabs(value - want) <= tolerance * std::max(std::fabs(want), 1.0F);
      if (!agrees) FAIL("token " << t << ", row " << i << ": " << value << " instead of " << want);
    }
  }
  for (std::size_t i = tokens * stride; i < got.size(); ++i)
    if (std::memcmp(&got[i], &poison, 4) != 0) FAIL("element " << i << " behind the output");
}

template <class Family>
void check_bf16(KernelTarget& target, const kernels::Bf16LinearProblem& problem,
                const typename Family::Params& params) {
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens, problem.rows[0]);
  const auto cols = static_cast<std::size_t>(problem.cols);
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const std::size_t stride = cols + kPadding;
  const auto x = random_input(problem.tokens, stride);
  std::vector<float> x_rows;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < cols; ++i)
      x_rows.push_back(reference::bf16_value(x[t * stride + i]));
  reference::ThreadPool pool(1);

  kernels::Bf16LinearArgs args{};
  args.x = target.place_as<const kernels::bf16>(x);
  args.tokens = problem.tokens;
  args.x_stride = static_cast<int>(stride);
  std::size_t words = 0;
  if constexpr (requires { Family::workspace_bytes(problem, params); })
    words = static_cast<std::size_t>(Family::workspace_bytes(problem, params) / 4);
  args.workspace = target.place_as<std::uint32_t>(std::vector<std::uint32_t>(words, 0xffffffffU));
  std::vector<std::vector<float>> wanted(kernels::BF16_SEGMENTS);
  std::vector<std::size_t> out_elements(kernels::BF16_SEGMENTS);
  for (std::size_t i = 0; i < kernels::BF16_SEGMENTS; ++i) {
    auto& segment = args.segments[i];
    segment.rows = problem.rows[i];
    if (segment.rows == 0) continue;
    const auto rows = static_cast<std::size_t>(segment.rows);
    auto weight = random_bf16(rows * cols, static_cast<unsigned>(10 + i));
    for (auto& w : weight)  // sums of about one
      w = reference::bf16_bits(reference::bf16_value(w) /
                               std::sqrt(static_cast<float>(problem.cols)));
    const reference::WeightMatrix matrix{.format = reference::WeightFormat::bf16,
                                         .data = reinterpret_cast<const std::byte*>(weight.data()),
                                         .stored_columns = problem.cols,
                                         .rows = segment.rows,
                                         .columns = problem.cols};
    wanted[i].resize(tokens * rows);
    reference::linear_f32(pool, matrix, x_rows, wanted[i]);
    segment.weight = target.place_as<const kernels::bf16>(weight);
    segment.out_stride = static_cast<int>(rows + kPadding);
    segment.out_bf16 = i == 0 ? 1 : 0;
    out_elements[i] = tokens * (rows + kPadding) + kGuard;
  }
  const auto run = [&] {
    for (std::size_t i = 0; i < kernels::BF16_SEGMENTS; ++i) {
      if (out_elements[i] == 0) continue;
      args.segments[i].out =
          i == 0 ? static_cast<void*>(target.place_as<std::uint16_t>(
                       std::vector<std::uint16_t>(out_elements[i], kPoisonBf16)))
                 : target.place_as<float>(std::vector<float>(out_elements[i], kPoisonFloat));
    }
    target.run(variant, Family::launch_shape(problem, params, target.limits()), &args);
    std::vector<std::vector<float>> out(kernels::BF16_SEGMENTS);
    for (std::size_t i = 0; i < kernels::BF16_SEGMENTS; ++i) {
      if (out_elements[i] == 0) continue;
      out[i] =
          i == 0
              ? bf16_values(target.fetch_as<std::uint16_t>(args.segments[i].out, out_elements[i]))
              : target.fetch_as<float>(args.segments[i].out, out_elements[i]);
    }
    return out;
  };
  const auto first = run();
  const auto second = run();
  for (const auto word : target.fetch_as<std::uint32_t>(args.workspace, words))
    REQUIRE(word == 0xffffffffU);
  // An mma of 16 columns may cut its sum, which is about one, off behind the last place.
  const float lost = static_cast<float>(problem.cols) / 16 * 0x1p-23F;
  for (std::size_t i = 0; i < kernels::BF16_SEGMENTS; ++i) {
    if (out_elements[i] == 0) continue;
    CAPTURE(i);
    REQUIRE(std::memcmp(first[i].data(), second[i].data(), first[i].size() * 4) == 0);
    const auto rows = static_cast<std::size_t>(problem.rows[i]);
    check_rows(first[i], wanted[i], rows, rows + kPadding,
               i == 0 ? reference::bf16_value(kPoisonBf16) : kPoisonFloat, i == 0 ? 0x1p-8F : lost);
  }
}

template <class Family>
void check_grouped(KernelTarget& target, const kernels::GroupedLinearProblem& problem,
                   const typename Family::Params& params) {
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens, problem.groups);
  const auto groups = static_cast<std::size_t>(problem.groups);
  const auto group_rows = static_cast<std::size_t>(problem.group_rows);
  const auto cols = static_cast<std::size_t>(problem.cols);
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const std::size_t rows = groups * group_rows;
  const std::size_t stride = groups * cols + kPadding;
  const auto x = random_input(problem.tokens, stride);
  std::mt19937 random(5);
  std::vector<std::byte> codes(rows * cols);
  for (auto& code : codes) {  // every code but NaN
    const auto bits = static_cast<std::uint8_t>(random());
    code = static_cast<std::byte>((bits & 0x7f) == 0x7f ? bits ^ 1 : bits);
  }
  std::vector<std::uint8_t> scales(rows / 128 * cols / 128);
  for (auto& scale : scales)
    scale = static_cast<std::uint8_t>(110 + random() % 8);
  std::vector<std::byte> tiles(codes.size());
  kernels::pack_fp8_tiles(codes, static_cast<int>(rows), problem.cols, tiles);

  reference::ThreadPool pool(1);
  const reference::WeightMatrix all{.format = reference::WeightFormat::fp8,
                                    .data = codes.data(),
                                    .scales = scales.data(),
                                    .stored_columns = problem.cols,
                                    .scale_columns = problem.cols / 128,
                                    .rows = static_cast<int>(rows),
                                    .columns = problem.cols};
  std::vector<float> wanted(tokens * rows);
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<float> of_group;
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t i = 0; i < cols; ++i)
        of_group.push_back(reference::bf16_value(x[t * stride + g * cols + i]));
    std::vector<float> y(tokens * group_rows);
    reference::linear_f32(
        pool, all.row_range(static_cast<std::int64_t>(g * group_rows), problem.group_rows),
        of_group, y);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t i = 0; i < group_rows; ++i)
        wanted[t * rows + g * group_rows + i] = y[t * group_rows + i];
  }

  const std::size_t out_stride = rows + kPadding;
  std::size_t words = 0;
  if constexpr (requires { Family::workspace_bytes(problem, params); })
    words = static_cast<std::size_t>(Family::workspace_bytes(problem, params) / 4);
  kernels::GroupedLinearArgs args{};
  args.x = target.place_as<const kernels::bf16>(x);
  args.weight = target.place_as<const kernels::fp8_e4m3>(tiles);
  args.scale = target.place_as<const kernels::ue8m0>(scales);
  args.workspace = target.place_as<std::uint32_t>(std::vector<std::uint32_t>(words, 0xffffffffU));
  args.tokens = problem.tokens;
  args.rows = static_cast<int>(rows);
  args.group_rows = problem.group_rows;
  args.x_stride = static_cast<int>(stride);
  args.out_stride = static_cast<int>(out_stride);
  const auto run = [&] {
    args.out = target.place_as<kernels::bf16>(
        std::vector<std::uint16_t>(tokens * out_stride + kGuard, kPoisonBf16));
    target.run(variant, Family::launch_shape(problem, params, target.limits()), &args);
    return target.fetch_as<std::uint16_t>(args.out, tokens * out_stride + kGuard);
  };
  const auto first = run();
  REQUIRE(run() == first);
  for (const auto word : target.fetch_as<std::uint32_t>(args.workspace, words))
    REQUIRE(word == 0xffffffffU);
  check_rows(bf16_values(first), wanted, rows, out_stride, reference::bf16_value(kPoisonBf16),
             0x1p-8F);
}

}  // namespace

void check_bf16_linear(KernelTarget& target, const kernels::Bf16LinearProblem& problem,
                       const kernels::Bf16Linear::Params& params) {
  check_bf16<kernels::Bf16Linear>(target, problem, params);
}

void check_bf16_linear(KernelTarget& target, const kernels::Bf16LinearProblem& problem,
                       const kernels::Bf16LinearSm90::Params& params) {
  check_bf16<kernels::Bf16LinearSm90>(target, problem, params);
}

void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinear::Problem& problem,
                          const kernels::GroupedLinear::Params& params) {
  check_grouped<kernels::GroupedLinear>(target, problem, params);
}

void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinearProblem& problem,
                          const kernels::GroupedLinearSm90::Params& params) {
  check_grouped<kernels::GroupedLinearSm90>(target, problem, params);
}

void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinearProblem& problem,
                          const kernels::GroupedLinearFew::Params& params) {
  check_grouped<kernels::GroupedLinearFew>(target, problem, params);
}

}  // namespace ingot::test
