#include "src/trials/edge_cases.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <span>

using namespace ingot;
using namespace ingot::trials;

namespace {

constexpr StepBucket kDecode{
    .rows = 8, .sequences = 8, .sequence_rows = 1, .logit_rows = 8, .context = 4096};
constexpr StepBucket kChunk{
    .rows = 64, .sequences = 1, .sequence_rows = 64, .logit_rows = 1, .context = 4096};

}  // namespace

TEST_CASE("every edge case is a step of its bucket", "[cpu][trials]") {
  const StepBucket bucket = GENERATE(kDecode, kChunk);
  const int each = bucket.rows / bucket.sequences;
  for (const EdgeCase& one : edge_cases(bucket, 512, 512)) {
    CAPTURE(bucket.rows, one.name);
    const executor::StepInputs& in = one.inputs;
    CHECK(in.row_starts[0] == 0);
    CHECK(in.row_starts[bucket.sequences] == one.live_rows);
    for (int row = 0; row < bucket.rows; ++row) {
      const bool live = row < one.live_rows;
      CHECK(in.sequences(bucket.rows)[row] == (live ? row / each : -1));
      CHECK(one.inputs.rows[row] < 512);
      CHECK(in.positions(bucket.rows)[row] >= 0);
      CHECK(in.positions(bucket.rows)[row] < bucket.context);
      if (live && row % each > 0)
        CHECK(in.positions(bucket.rows)[row] == in.positions(bucket.rows)[row - 1] + 1);
    }
    for (int i = 0; i < bucket.logit_rows; ++i)
      CHECK(in.picks[i] < bucket.rows);
  }
}

TEST_CASE("the first edge case fills the bucket, others have few keys, none, and one token",
          "[cpu][trials]") {
  const auto cases = edge_cases(kDecode, 512, 512);
  REQUIRE(cases.size() == 4);
  CHECK(cases[0].name == "largest");
  CHECK(cases[0].live_rows == 8);
  CHECK(std::all_of(cases[0].inputs.positions(8), cases[0].inputs.positions(8) + 8,
                    [](int position) { return position == 4095; }));
  // Entries of four tokens: fewer than top-k for some sequences, more for others.
  const auto few = std::count_if(cases[1].inputs.positions(8), cases[1].inputs.positions(8) + 8,
                                 [](int position) { return position / 4 < 512; });
  CHECK(few > 0);
  CHECK(few < 8);
  CHECK(cases[2].live_rows == 4);
  CHECK(cases[3].inputs.positions(8)[7] == 0);
  // A single row is the empty one.
  CHECK(edge_cases({.context = 4096}, 512, 512)[2].live_rows == 0);
}

TEST_CASE("sequences share no page, and the first one's context ends in the last of the pool",
          "[cpu][trials]") {
  const PageShare share = GENERATE(PageShare{.sequences = 3, .needed = 16, .own = 16},
                                   PageShare{.sequences = 3, .needed = 16, .own = 5},
                                   PageShare{.sequences = 1, .needed = 1, .own = 1});
  CHECK(share.page(0, share.needed - 1) == share.pool_pages() - 1);
  std::set<int> all;
  for (int s = 0; s < share.sequences; ++s) {
    std::set<int> own;
    for (int i = 0; i < share.needed; ++i)
      own.insert(share.page(s, i));
    CHECK(static_cast<int>(own.size()) == share.own);
    for (const int page : own)
      CHECK(all.insert(page).second);
  }
  CHECK(*all.begin() == 0);
  CHECK(*all.rbegin() == share.pool_pages() - 1);
}

TEST_CASE("tokens are chosen in every way of the sampler, most of all as users have it",
          "[cpu][trials]") {
  StepBucket bucket = kDecode;
  bucket.sampled = true;
  auto cases = edge_cases(bucket, 512, 512);
  const auto* const usual = cases[0].inputs.sample_rows(bucket.logit_rows);
  for (const auto& sample : std::span(usual, static_cast<std::size_t>(bucket.logit_rows))) {
    CHECK(sample.temperature == 1);
    CHECK(sample.top_p < 1);
    CHECK(sample.logprobs == -1);
  }
  const auto* const varied = cases[1].inputs.sample_rows(bucket.logit_rows);
  CHECK(varied[0].has_penalties == 1);
  const auto any = [&](const auto& holds) {
    return std::any_of(varied, varied + bucket.logit_rows, holds);
  };
  CHECK(any([](const auto& sample) { return sample.temperature == 0; }));
  CHECK(any([](const auto& sample) { return sample.top_k > 0; }));
  CHECK(any([](const auto& sample) { return sample.min_p > 0; }));
  CHECK(any([](const auto& sample) { return sample.logprobs == 20; }));
}
