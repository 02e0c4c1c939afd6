#include "tests/support/emulator/sparse_mla_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) SparseMlaVariant name();
#include "tests/support/emulator/sparse_mla_variants.def"
#undef VARIANT

std::vector<SparseMlaVariant> sparse_mla_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/sparse_mla_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
