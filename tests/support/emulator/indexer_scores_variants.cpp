#include "tests/support/emulator/indexer_scores_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) IndexerScoresVariant name();
#include "tests/support/emulator/indexer_scores_variants.def"
#undef VARIANT

std::vector<IndexerScoresVariant> indexer_scores_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/indexer_scores_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
