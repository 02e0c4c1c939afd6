#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

/// Element types of stored tensors, by their safetensors names.
enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0
};

/// "BF16", "F8_E4M3", "I8" (FP4 experts are stored as I8, two values per byte) …
std::string_view dtype_name(Dtype dtype);
/// The reverse; nullopt for a name that we do not know.
std::optional<Dtype> dtype_from_name(std::string_view name);
int dtype_bytes(Dtype dtype);

}  // namespace ingot
