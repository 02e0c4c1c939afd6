// One variant of moe_decode on the emulator. Compiled once per variant with
//   VARIANT      its name
//   OVERRIDES    {"PARAM", value}, … for parameters that differ from the default
// and with `kernels` and the kernel's name renamed, so that variants live side by side.
#include <stdexcept>
#include <string_view>

#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/moe_decode_variants.hpp"

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
#include "moe_decode.params.def"
#undef PARAM

#include "moe_decode.cuh"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {

namespace {

std::vector<float> run_variant(const MoeExperts& experts, int blocks, int launches,
                               std::uint64_t seed) {
  const MoeShape& shape = experts.shape;
  // Jobs come from the checkpoint's layout by the same code as at load; bulk copies want alignment.
  const auto aligned = [](const auto& bytes, std::vector<uint4>& room) {
    room.resize(bytes.size() * sizeof(bytes[0]) / 16 + 1);
    std::memcpy(room.data(), bytes.data(), bytes.size() * sizeof(bytes[0]));
  };
  std::vector<uint4> gate_up, down, x, x_scale;
  aligned(experts.gate_up_jobs(), gate_up);
  aligned(experts.down_jobs(), down);
  aligned(experts.codes, x);
  // A row's scales are filled up to whole 16-byte words.
  const auto groups = static_cast<std::size_t>(shape.hidden / 128),
             stride = static_cast<std::size_t>(kernels::moe_x_scales(shape.hidden));
  std::vector<float> scales(experts.scales.size() / groups * stride);
  for (std::size_t i = 0; i < experts.scales.size(); ++i)
    scales[i / groups * stride + i % groups] = experts.scales[i];
  aligned(scales, x_scale);
  std::vector<kernels::u32> counters(kernels::MOE_COUNTER_WORDS, 0);
  std::vector<float> first;
  for (int launch = 0; launch < launches; ++launch) {
    const uint4 poison{~0u, ~0u, ~0u, ~0u};
    std::vector<uint4> sums(shape.pairs() * static_cast<std::size_t>(shape.inter), poison);
    std::vector<uint4> activations(shape.pairs() * kernels::RECORD / 16, poison);
    std::vector<float> out(experts.x.size(), __uint_as_float(~0u));
    const kernels::MoeDecodeArgs args{
        .x = reinterpret_cast<const kernels::fp8_e4m3*>(x.data()),
        .x_scale = reinterpret_cast<const float*>(x_scale.data()),
        .experts = experts.ids.data(),
        .weights = experts.weights.data(),
        .gate_up = reinterpret_cast<const kernels::u8*>(gate_up.data()),
        .down = reinterpret_cast<const kernels::u8*>(down.data()),
        .sums = reinterpret_cast<float*>(sums.data()),
        .activations = reinterpret_cast<kernels::u8*>(activations.data()),
        .out = out.data(),
        .counters = counters.data(),
        .limit = 10.0f,
        .tokens = shape.tokens};
    emulator::run({{static_cast<unsigned>(blocks)},
                   {static_cast<unsigned>(kernels::THREADS)},
                   static_cast<std::size_t>(kernels::SMEM_BYTES),
                   seed + static_cast<std::uint64_t>(launch)},
                  [&] { kernels::moe_decode(args); });
    if (launch == 0)
      first = out;
    else if (std::memcmp(first.data(), out.data(), out.size() * 4) != 0)
      throw std::runtime_error("two launches differ");
  }
  return first;
}

}  // namespace

MoeDecodeVariant VARIANT() {
  return {STRING(VARIANT),
          {HIDDEN, INTER, EXPERTS, TOPK, BATCH},
          ROUND_EXPERTS,
          WHOLE_STRIPS,
          run_variant};
}

}  // namespace ingot::test::emulator
