#include "runtime/base/dtype.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

TEST_CASE("every dtype is found again by its safetensors name", "[cpu][base]") {
  for (int index = 0; index <= static_cast<int>(Dtype::f8_e8m0); ++index) {
    const auto dtype = static_cast<Dtype>(index);
    CAPTURE(dtype_name(dtype));
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
    CHECK(dtype_bytes(dtype) >= 1);
  }
  CHECK(dtype_bytes(Dtype::bf16) == 2);
  CHECK(dtype_bytes(Dtype::i64) == 8);
  CHECK(dtype_from_name("F4") == std::nullopt);
}
