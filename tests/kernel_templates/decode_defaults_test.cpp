#include <catch2/catch.hpp>
#include <tuple>
#include <utility>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/compress_kv.space.hpp"
#include "kernel_templates/indexer_queries.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/indexer_topk.space.hpp"
#include "kernel_templates/sample_tokens.space.hpp"
#include "kernel_templates/sparse_mla_prefill.space.hpp"

using namespace ingot;

namespace {

const cu::DeviceLimits& h200() {
  static const auto limits = cu::limits_of_arch("sm_90a").value();
  return limits;
}

template <class Family>
typename Family::Params default_of(const typename Family::Problem& problem) {
  return Family::space(problem, h200()).default_candidate();
}

}  // namespace

TEST_CASE("the index keys' defaults on an H200 are a tuning's choices", "[cpu][families]") {
  using kernels::IndexerScoresSm90, kernels::IndexerTopk, kernels::IndexerQueries;
  for (const int rows : {1, 2, 4, 8, 16}) {
    CAPTURE(rows);
    const auto scores = default_of<IndexerScoresSm90>({.rows = rows, .entries = 1024});
    CHECK(scores ==
          IndexerScoresSm90::Params{.WARPGROUPS = 2, .KEY_TILES = 1, .STAGES = 8, .RESIDENT = 1});
    CHECK(default_of<IndexerQueries>({.rows = rows}).WARP_HEADS == 1);
  }
  for (const auto& [rows, entries] : {std::pair{16, 8192}, {64, 8192}, {256, 32768}}) {
    CAPTURE(rows, entries);
    const auto scores = default_of<IndexerScoresSm90>({.rows = rows, .entries = entries});
    CHECK(scores ==
          IndexerScoresSm90::Params{.WARPGROUPS = 2, .KEY_TILES = 2, .STAGES = 4, .RESIDENT = 2});
  }
  const auto topk = [](int rows, int entries) {
    const auto c = default_of<IndexerTopk>({.rows = rows, .entries = entries});
    return std::tuple(c.THREADS, c.VECTORS, c.CLUSTER);
  };
  CHECK(topk(64, 1024) == std::tuple(512, 2, 1));
  CHECK(topk(4096, 1024) == std::tuple(256, 4, 1));
  CHECK(topk(4, 8192) == std::tuple(512, 1, 4));
  CHECK(topk(1, 32768) == std::tuple(512, 2, 8));
  CHECK(topk(64, 32768) == std::tuple(1024, 4, 2));
}

TEST_CASE("the compressors' defaults follow how many tokens come at a time", "[cpu][families]") {
  using kernels::CompressKv;
  CHECK(default_of<CompressKv>({.tokens = 1, .ratio = 4}).CHANNELS == 2);
  CHECK(default_of<CompressKv>({.tokens = 4096, .ratio = 4}).CHANNELS == 2);
  const auto one = default_of<CompressKv>({.tokens = 1, .ratio = 128});
  CHECK((one.CHANNELS == 2 && one.TOKENS_AHEAD == 4));
  const auto chunk = default_of<CompressKv>({.tokens = 4096, .ratio = 128});
  CHECK((chunk.CHANNELS == 4 && chunk.TOKENS_AHEAD == 8));
}

TEST_CASE("a rank of eight heads has two blocks of a prompt's attention on a multiprocessor",
          "[cpu][families]") {
  using kernels::SparseMlaPrefill;
  CHECK(default_of<SparseMlaPrefill>({.rows = 1024, .heads = 8}).BLOCKS_PER_SM == 2);
  CHECK(default_of<SparseMlaPrefill>({.rows = 1024, .heads = 64}).BLOCKS_PER_SM == 1);
}

TEST_CASE("many groups are quantised by large blocks", "[cpu][families]") {
  using kernels::ActQuant;
  CHECK(default_of<ActQuant>({.tokens = 32, .cols = 8192}).THREADS == 128);
  CHECK(default_of<ActQuant>({.tokens = 4096, .cols = 8192}).THREADS == 512);
}

TEST_CASE("a row of logits is shared by as many blocks as the card has room for",
          "[cpu][families]") {
  using kernels::SampleTokens;
  for (const auto& [rows, split] :
       {std::pair{1, 32}, {4, 32}, {8, 16}, {16, 8}, {32, 4}, {64, 2}, {128, 1}})
    CHECK(default_of<SampleTokens>({.rows = rows}).SPLIT == split);
  // No thread without ids.
  CHECK(default_of<SampleTokens>({.vocabulary = 4096, .rows = 1}).SPLIT == 2);
}
