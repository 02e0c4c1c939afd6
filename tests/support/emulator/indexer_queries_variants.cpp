#include "tests/support/emulator/indexer_queries_variants.hpp"

namespace ingot::test::emulator {

#define VARIANT(name) IndexerQueriesVariant name();
#include "tests/support/emulator/indexer_queries_variants.def"
#undef VARIANT

std::vector<IndexerQueriesVariant> indexer_queries_variants() {
  return {
#define VARIANT(name) name(),
#include "tests/support/emulator/indexer_queries_variants.def"
#undef VARIANT
  };
}

}  // namespace ingot::test::emulator
