// One variant of indexer_scores_sm90 on the emulator: as indexer_scores_variant.cpp.
#define INDEXER_SCORES_SM90
#include "indexer_scores_variant.cpp"
