#pragma once
// The element types of device code and of kernel arguments. No header of any toolkit is used: what
// a kernel is made of is exactly what lies in this tree. Compiled by NVRTC and, in .args.h, by g++.

namespace ingot::kernels {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(i16) == 2 && sizeof(i32) == 4 && sizeof(i64) == 8, "LP64 sizes");

// Stored numbers: bits only, so that no arithmetic happens on them by accident.
struct bf16 {
  u16 bits;
};
struct fp8_e4m3 {
  u8 bits;
};
// A power of two: 2^(bits - 127). 255 is NaN and is refused by the loader.
struct ue8m0 {
  u8 bits;
};
// Two e2m1 values; element 2i in the low half of byte i.
struct fp4x2_e2m1 {
  u8 bits;
};

// A descriptor of the bulk copy engine, made by the driver and passed by value (sm_90 and later).
struct alignas(128) TensorMap {
  u64 opaque[16];
};

}  // namespace ingot::kernels
