#include "tests/support/emulator/compress_kv_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) CompressKvVariant name();
#include "tests/support/emulator/compress_kv_variants.def"
#undef VARIANT

std::vector<CompressKvVariant> compress_kv_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/compress_kv_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
