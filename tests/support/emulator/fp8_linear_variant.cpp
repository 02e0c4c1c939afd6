// One variant of fp8_linear_sm90 on the emulator. Compiled once per variant with
//   VARIANT      its name
//   OVERRIDES    {"PARAM", value}, … for parameters that differ from the default
// and with `kernels` and the kernel's name renamed, so that variants live side by side.
#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/fp8_linear_variants.hpp"

namespace {

struct Override {
  std::string_view name;
  int value;
};
constexpr Override kOverrides[] = {OVERRIDES, {"", 0}};

constexpr int value_of(std::string_view name, int value) {
  for (const Override& o : kOverrides)
    if (o.name == name) value = o.value;
  return value;
}

}  // namespace

#define INGOT_PARAMS_GENERATED
#define PARAM(type, name, value, doc) constexpr type name = value_of(#name, value);
#include "fp8_linear_sm90.params.def"
#undef PARAM
#include "fp8_linear_sm90.cuh"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {

namespace {

std::vector<std::uint16_t> run_variant(const Fp8LinearInputs& in, std::uint64_t seed) {
  const int token_tiles = (in.tokens + TOKENS - 1) / TOKENS;
  std::vector<std::uint16_t> out(static_cast<std::size_t>(in.tokens * in.rows), 0xffff);
  std::vector<std::uint32_t> workspace(
      static_cast<std::size_t>(
          kernels::fp8_linear_workspace_bytes(in.rows / 128, in.tokens, TOKENS, SPLIT_K) / 4),
      0xffffffffu);
  kernels::Fp8LinearArgs args{};
  args.segments[0] = {reinterpret_cast<const kernels::fp8_e4m3*>(in.weight.data()),
                      reinterpret_cast<const kernels::ue8m0*>(in.weight_scale.data()),
                      reinterpret_cast<kernels::bf16*>(out.data()), in.rows, in.rows};
  args.xq = reinterpret_cast<const kernels::fp8_e4m3*>(in.x.data());
  args.x_scale = in.x_scale.data();
  args.workspace = workspace.data();
  args.tokens = in.tokens;
  args.x_rows = in.x_rows;
  const Launch launch{
      .grid = {SPLIT_K, static_cast<unsigned>(token_tiles), static_cast<unsigned>(in.strip_blocks)},
      .block = {kernels::THREADS},
      .smem_bytes = kernels::EXCHANGED + kernels::MATH_WARPS * 8,
      .seed = seed,
      .cluster = {CLUSTERED ? SPLIT_K : 1, MULTICAST ? 2 : 1}};
  emulator::run(launch, [&] { kernels::fp8_linear_sm90(args); });
  if (!std::all_of(workspace.begin(), workspace.end(), [](auto word) { return word == ~0u; }))
    throw std::runtime_error("the workspace is not as it was before the launch");
  return out;
}

}  // namespace

Fp8LinearVariant VARIANT() {
  return {STRING(VARIANT), COLS, kernels::ONE_STRIP, MULTICAST, TOKENS, run_variant};
}

}  // namespace ingot::test::emulator
