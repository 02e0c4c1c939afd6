#include "tests/support/moe_prefill_check.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/reference/numerics.hpp"

namespace ingot::test {
namespace {

using kernels::ExpertGather;
using kernels::ExpertJoin;
using kernels::ExpertOrder;

constexpr double kTolerance = 2e-3, kRowTolerance = 4e-3;  // relative
constexpr double kActivationTolerance = 1e-2, kActivationRowTolerance = 4e-2;
constexpr std::size_t kGuard = 64;  // floats behind the output

}  // namespace

std::vector<jit::Variant> MoePrefillVariants::all() const {
  return {variant_of<ExpertOrder>(order), variant_of<ExpertGather>(gather), gate_up, down,
          variant_of<ExpertJoin>(join)};
}

MoePrefillResult run_moe_prefill(KernelTarget& target, const MoePrefillVariants& variants,
                                 const MoeExperts& experts, int workspace_tokens) {
  const MoeShape& shape = experts.shape;
  const kernels::MoePrefillWorkspace at(workspace_tokens, shape.inter, shape.hidden, shape.experts,
                                        shape.topk, variants.join.ROUND_EXPERTS);
  const std::vector<std::byte> poison(static_cast<std::size_t>(at.bytes), std::byte{0xff});
  auto* const workspace = static_cast<kernels::u8*>(target.place(poison));
  const auto place = [&]<class T>(long long offset, T*) {
    return reinterpret_cast<T*>(workspace + offset);
  };
  int* const no_int = nullptr;
  float* const no_float = nullptr;
  const int* ids = target.place_as<int>(experts.ids);
  const float* weights = target.place_as<float>(experts.weights);

  const kernels::ExpertOrderArgs order{.experts = ids,
                                       .weights = weights,
                                       .first = place(at.first, no_int),
                                       .count = place(at.count, no_int),
                                       .row_of = place(at.row_of, no_int),
                                       .row_weight = place(at.row_weight, no_float),
                                       .tokens = shape.tokens};
  const auto order_shape =
      ExpertOrder::launch_shape({.experts = shape.experts, .topk = shape.topk}, variants.order);
  target.run(variant_of<ExpertOrder>(variants.order), order_shape, &order);

  const int groups = shape.hidden / 128;
  const kernels::ExpertGatherArgs gather{.x = target.place_as<kernels::fp8_e4m3>(experts.codes),
                                         .x_scale = target.place_as<float>(experts.scales),
                                         .row_of = order.row_of,
                                         .rows = workspace + at.rows,
                                         .row_scale = place(at.row_scale, no_float),
                                         .scale_stride = groups,
                                         .row_pitch = at.row_pitch,
                                         .tokens = shape.tokens};
  target.run(
      variant_of<ExpertGather>(variants.gather),
      ExpertGather::launch_shape(
          {.hidden = shape.hidden, .topk = shape.topk, .tokens = shape.tokens}, variants.gather),
      &gather);

  kernels::MoePrefillArgs product{
      .weights = static_cast<kernels::u8*>(target.place(experts.gate_up_jobs())),
      .x = gather.rows,
      .x_scale = gather.row_scale,
      .first = order.first,
      .count = order.count,
      .row_weight = order.row_weight,
      .h = workspace + at.h,
      .h_scale = place(at.h_scale, no_float),
      .y = workspace + at.y,
      .limit = 10.0F,
      .row_pitch = at.row_pitch};
  target.run(variants.gate_up, variants.gate_up_shape, &product);
  product.weights = static_cast<kernels::u8*>(target.place(experts.down_jobs()));
  product.x = product.h;
  product.x_scale = product.h_scale;
  target.run(variants.down, variants.down_shape, &product);

  std::vector<float> out(experts.x.size() + kGuard, std::bit_cast<float>(0xffffffffU));
  const kernels::ExpertJoinArgs join{.y = product.y,
                                     .row_of = order.row_of,
                                     .out = target.place_as<float>(out),
                                     .tokens = shape.tokens};
  target.run(
      variant_of<ExpertJoin>(variants.join),
      ExpertJoin::launch_shape({.hidden = shape.hidden, .tokens = shape.tokens}, variants.join),
      &join);
  out = target.fetch_as<float>(join.out, out.size());
  for (std::size_t i = experts.x.size(); i < out.size(); ++i)
    REQUIRE(std::bit_cast<unsigned>(out[i]) == 0xffffffffU);
  out.resize(experts.x.size());

  const auto kept = target.fetch_as<std::uint8_t>(workspace, poison.size());
  const auto number = [&]<class T>(long long offset, long long index, T value) {
    std::memcpy(
        &value,
        &kept[static_cast<std::size_t>(offset) + static_cast<std::size_t>(index) * sizeof(T)],
        sizeof(T));
    return value;
  };
  std::vector<float> activations;
  for (long long pair = 0; pair < shape.tokens * shape.topk; ++pair) {
    const int row = number(at.row_of, pair, 0);
    for (int column = 0; column < shape.inter; ++column) {
      const long long first = static_cast<long long>(column / 128) * at.row_pitch + row / 8 * 8;
      const auto code = number(
          at.h, first * 128 + kernels::expert_tile_offset(row % 8, column % 128), std::uint8_t{0});
      activations.push_back(reference::e4m3_value(code) *
                            number(at.h_scale, first + row % 8, 0.0F));
    }
  }
  return {std::move(out), std::move(activations)};
}

MoePrefillErrors check_moe_prefill(KernelTarget& target, const MoePrefillVariants& variants,
                                   const MoeExperts& experts, int repeats) {
  MoePrefillResult first;
  for (int i = 0; i < repeats; ++i) {
    // Another pitch of the workspace moves everything, and changes nothing.
    auto got = run_moe_prefill(target, variants, experts, experts.shape.tokens + 5 * i);
    if (i == 0)
      first = std::move(got);
    else
      REQUIRE(std::memcmp(first.sums.data(), got.sums.data(), got.sums.size() * 4) == 0);
  }
  const auto activations = compare_moe(first.activations, experts.reference_activations(),
                                       experts.shape.inter * experts.shape.topk);
  const auto sums = compare_moe(
      first.sums, experts.reference_sums(first.activations, variants.join.ROUND_EXPERTS),
      experts.shape.hidden);
  CAPTURE(activations.relative, activations.worst_row, sums.relative, sums.worst_row);
  REQUIRE_FALSE(activations.nan_differs);
  REQUIRE_FALSE(sums.nan_differs);
  REQUIRE(activations.relative <= kActivationTolerance);
  REQUIRE(activations.worst_row <= kActivationRowTolerance);
  REQUIRE(sums.relative <= kTolerance);
  REQUIRE(sums.worst_row <= kRowTolerance);
  return {activations.relative, sums.relative};
}

void check_row_scales(KernelTarget& target, const kernels::ExpertGatherParams& params) {
  constexpr int kTokens = 7, kNanToken = 4;
  const int groups = params.HIDDEN / 128, stride = groups + 3;
  const int pairs = kTokens * params.TOPK, pitch = pairs + 8 + (8 - pairs % 8) % 8;
  std::mt19937 random(5);
  std::vector<std::uint8_t> codes;
  std::vector<float> scales(static_cast<std::size_t>(kTokens * stride),
                            std::numeric_limits<float>::infinity());  // between tokens: not read
  for (int token = 0; token < kTokens; ++token)
    for (int group = 0; group < groups; ++group) {
      for (int i = 0; i < 128; ++i) {
        const auto code = static_cast<std::uint8_t>(random());
        codes.push_back((code & 0x7f) == 0x7f ? std::uint8_t{0x7e} : code);
      }
      scales[static_cast<std::size_t>(token * stride + group)] =
          token == kNanToken && group == 1
              ? std::numeric_limits<float>::quiet_NaN()
              : std::ldexp(1.0F, token == 0 ? -12 : -static_cast<int>(random() % 41));
    }
  std::vector<int> row_of;
  for (int pair = 0; pair < pairs; ++pair)
    row_of.push_back((pair * 5 + 3) % pairs + 4);
  const std::size_t bytes = static_cast<std::size_t>(params.HIDDEN) * static_cast<unsigned>(pitch);
  const kernels::ExpertGatherArgs args{
      .x = target.place_as<kernels::fp8_e4m3>(codes),
      .x_scale = target.place_as<float>(scales),
      .row_of = target.place_as<int>(row_of),
      .rows = target.place_as<kernels::u8>(std::vector<std::uint8_t>(bytes, 0x55)),
      .row_scale =
          target.place_as<float>(std::vector<float>(static_cast<std::size_t>(pitch), -1.0F)),
      .scale_stride = stride,
      .row_pitch = pitch,
      .tokens = kTokens};
  target.run(variant_of<ExpertGather>(params),
             ExpertGather::launch_shape(
                 {.hidden = params.HIDDEN, .topk = params.TOPK, .tokens = kTokens}, params),
             &args);
  const auto rows = target.fetch_as<std::uint8_t>(args.rows, bytes);
  const auto row_scales = target.fetch_as<float>(args.row_scale, static_cast<std::size_t>(pitch));
  std::size_t rounded = 0, wrong = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    const int token = pair / params.TOPK, row = row_of[static_cast<std::size_t>(pair)];
    const float scale = row_scales[static_cast<std::size_t>(row)];
    CAPTURE(token, row, scale);
    if (token == kNanToken) {
      REQUIRE(std::isnan(scale));
      continue;
    }
    const float* const own = &scales[static_cast<std::size_t>(token * stride)];
    REQUIRE(scale == *std::max_element(own, own + groups));
    for (int column = 0; column < params.HIDDEN; ++column) {
      const int at = (column / 128 * pitch + row / 8 * 8) * 128 +
                     kernels::expert_tile_offset(row % 8, column % 128);
      const double got = reference::e4m3_value(rows[static_cast<std::size_t>(at)]);
      const double expected =
          double{reference::e4m3_value(
              codes[static_cast<std::size_t>(token * params.HIDDEN + column)])} *
          own[column / 128] / scale;
      const bool has = std::abs(expected) >= 0x1p-6 || std::fmod(expected, 0x1p-9) == 0;
      wrong += has ? got != expected : std::abs(got - expected) > 0x1p-10;
      rounded += has ? 0 : 1;
    }
  }
  REQUIRE(wrong == 0);
  REQUIRE(rounded > 0);  // else the bound was not tried
  for (int row = 0; row < 4; ++row)
    REQUIRE(row_scales[static_cast<std::size_t>(row)] == -1.0F);  // of no pair: left alone
}

}  // namespace ingot::test
