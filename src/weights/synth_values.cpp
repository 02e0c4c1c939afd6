#include "src/weights/synth_values.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace ingot {
namespace {

// splitmix64: the increment and the finaliser's two factors; kSeedStep keeps the streams of
// neighbouring seeds apart.
constexpr std::uint64_t kSeedStep = 0xD1342543DE82EF95;
constexpr std::uint64_t kIndexStep = 0x9E3779B97F4A7C15;

std::uint64_t fnv1a(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  return hash;
}

inline std::uint64_t hash_at(std::uint64_t base, std::uint64_t index) {
  std::uint64_t z = base + (index + 1) * kIndexStep;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

template <class Element, class Make>
void fill_elements(std::span<std::byte> out, std::uint64_t first, Make make) {
  constexpr std::size_t kWidth = sizeof(Element);
  for (std::size_t i = 0; i < out.size() / kWidth; ++i) {
    const Element element = make(first + i);
    std::memcpy(out.data() + i * kWidth, &element, kWidth);
  }
}

/// 1/sqrt(fan_in) as a power of two, halves to even.
int fan_in_exponent(std::int64_t fan_in) {
  return -static_cast<int>(std::nearbyint(std::log2(std::sqrt(static_cast<double>(fan_in)))));
}

int exponent_of(const ModelConfig& config, const TensorSpec& spec) {
  const auto is = [&](std::string_view end) { return spec.name.ends_with(end); };
  const std::int64_t columns = spec.shape.back();
  switch (spec.kind) {
    case TensorKind::fp8:
      return fan_in_exponent(columns) - (is(".wo_b.weight") || is(".w2.weight") ? 2 : 0);
    case TensorKind::fp4:
      return fan_in_exponent(2 * columns) - (is(".w2.weight") ? 2 : 0);
    case TensorKind::bf16:
      if (is("embed.weight")) return 0;
      if (is("head.weight")) return fan_in_exponent(columns) + 3;
      if (is(".ffn.gate.weight")) return fan_in_exponent(columns) + 2;
      return fan_in_exponent(columns) + 1;  // compressors and the indexer's weights_proj
    case TensorKind::f32:
      if (is(".attn_sink")) return 1;
      if (is(".gate.bias")) return -3;
      if (is("_fn")) return fan_in_exponent(std::int64_t{config.hc_mult} * config.hidden_size) + 1;
      return 0;
    case TensorKind::norm:
    case TensorKind::token_experts:
    case TensorKind::block_scale:
    case TensorKind::group_scale:
      return 0;
  }
  return 0;
}

}  // namespace

std::vector<int> synth_exponents(const ModelConfig& config, std::span<const TensorSpec> table) {
  std::vector<int> exponents;
  for (const TensorSpec& spec : table) {
    const bool is_scale =
        spec.kind == TensorKind::block_scale || spec.kind == TensorKind::group_scale;
    // The table puts a scale right behind its weight.
    exponents.push_back(is_scale ? exponents.back() : exponent_of(config, spec));
  }
  return exponents;
}

SynthTensor::SynthTensor(const TensorSpec& spec, const ModelConfig& config, int exponent,
                         std::uint64_t seed)
    : kind_(spec.kind),
      base_(fnv1a(spec.name) + seed * kSeedStep),
      experts_(static_cast<std::uint64_t>(config.num_experts)),
      columns_(static_cast<std::uint64_t>(spec.shape.back())),
      // The codes' root mean square is about 2^7 in FP8 and 2^1.5 in FP4.
      scale_bias_(static_cast<std::uint64_t>(127 + exponent -
                                             (spec.kind == TensorKind::block_scale ? 7 : 2))),
      f32_{} {
  for (int b = 0; b < 256; ++b) {
    const float value = kind_ == TensorKind::norm
                            ? 1.0f + static_cast<float>(b % 33 - 16) / 128.0f
                            : std::ldexp(static_cast<float>(2 * b - 255) / 256.0f, exponent);
    f32_[static_cast<std::size_t>(b)] = std::bit_cast<std::uint32_t>(value);
  }
}

void SynthTensor::fill(std::uint64_t first, std::span<std::byte> out) const {
  const std::uint64_t base = base_;
  switch (kind_) {
    case TensorKind::bf16:
    case TensorKind::norm:  // exact in bf16: the upper half of the f32
      fill_elements<std::uint16_t>(out, first, [&](std::uint64_t i) {
        return static_cast<std::uint16_t>(f32_[hash_at(base, i) >> 56] >> 16);
      });
      return;
    case TensorKind::f32:
      fill_elements<std::uint32_t>(out, first,
                                   [&](std::uint64_t i) { return f32_[hash_at(base, i) >> 56]; });
      return;
    case TensorKind::fp8:  // 0x7F and 0xFF are NaN
      fill_elements<std::uint8_t>(out, first, [&](std::uint64_t i) {
        const auto b = static_cast<std::uint8_t>(hash_at(base, i) >> 56);
        return static_cast<std::uint8_t>(b - ((b & 0x7F) == 0x7F ? 1 : 0));
      });
      return;
    case TensorKind::fp4:
      fill_elements<std::uint8_t>(out, first, [&](std::uint64_t i) {
        return static_cast<std::uint8_t>(hash_at(base, i) >> 56);
      });
      return;
    case TensorKind::block_scale:
    case TensorKind::group_scale:
      fill_elements<std::uint8_t>(out, first, [&](std::uint64_t i) {
        return static_cast<std::uint8_t>(scale_bias_ + hash_at(base, i) % 3 - 1);
      });
      return;
    case TensorKind::token_experts:  // an odd stride over a power of two never repeats
      fill_elements<std::uint64_t>(out, first, [&](std::uint64_t i) {
        const std::uint64_t hash = hash_at(base, i / columns_);
        const std::uint64_t stride = (hash >> 32) % (experts_ / 2) * 2 + 1;
        return (hash % experts_ + i % columns_ * stride) % experts_;
      });
      return;
  }
}

}  // namespace ingot
