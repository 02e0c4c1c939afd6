#include "tests/support/emulator/moe_decode_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) MoeDecodeVariant name();
#include "tests/support/emulator/moe_decode_variants.def"
#undef VARIANT

std::vector<MoeDecodeVariant> moe_decode_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/moe_decode_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
