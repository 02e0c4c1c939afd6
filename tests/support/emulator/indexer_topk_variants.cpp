#include "tests/support/emulator/indexer_topk_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) IndexerTopkVariant name();
#include "tests/support/emulator/indexer_topk_variants.def"
#undef VARIANT

std::vector<IndexerTopkVariant> indexer_topk_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/indexer_topk_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
