#include "tests/support/emulator/fp8_linear_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) Fp8LinearVariant name();
#include "tests/support/emulator/fp8_linear_variants.def"
#undef VARIANT

std::vector<Fp8LinearVariant> fp8_linear_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/fp8_linear_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
