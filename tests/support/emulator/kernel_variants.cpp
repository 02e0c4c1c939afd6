#include "tests/support/emulator/kernel_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) KernelVariant name();
#include "kernel_variants.def"
#undef VARIANT

std::vector<KernelVariant> kernel_variants() {
  return {
#define VARIANT(name) name(),
#include "kernel_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
