#include "runtime/base/dtype.hpp"

#include <array>

namespace ingot {
namespace {

struct Entry {
  Dtype dtype;
  std::string_view name;
  int bytes;
};

constexpr std::array<Entry, 16> kDtypes{{
    {Dtype::boolean, "BOOL", 1},
    {Dtype::u8, "U8", 1},
    {Dtype::i8, "I8", 1},
    {Dtype::i16, "I16", 2},
    {Dtype::u16, "U16", 2},
    {Dtype::f16, "F16", 2},
    {Dtype::bf16, "BF16", 2},
    {Dtype::i32, "I32", 4},
    {Dtype::u32, "U32", 4},
    {Dtype::f32, "F32", 4},
    {Dtype::f64, "F64", 8},
    {Dtype::i64, "I64", 8},
    {Dtype::u64, "U64", 8},
    {Dtype::f8_e4m3, "F8_E4M3", 1},
    {Dtype::f8_e5m2, "F8_E5M2", 1},
    {Dtype::f8_e8m0, "F8_E8M0", 1},
}};

const Entry& entry(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return entry(dtype).name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Entry& candidate : kDtypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

int dtype_bytes(Dtype dtype) {
  return entry(dtype).bytes;
}

}  // namespace ingot
