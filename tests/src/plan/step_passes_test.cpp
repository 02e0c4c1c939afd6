#include <bit>
#include <catch2/catch.hpp>

#include "src/plan/step_bucket.hpp"

using namespace ingot;

namespace {

/// Rows of the buckets that so many tokens are read in.
std::vector<int> passes(std::int64_t tokens, int most) {
  std::vector<int> rows;
  while (tokens > 0) {
    const int next = next_pass_rows(tokens, most);
    REQUIRE(next >= 1);
    REQUIRE(next <= std::min<std::int64_t>(tokens, most));
    rows.push_back(static_cast<int>(std::bit_ceil(static_cast<unsigned>(next))));
    tokens -= next;
  }
  return rows;
}

}  // namespace

TEST_CASE("a prompt is cut where two passes are less work than an idle one", "[cpu][plan]") {
  using Rows = std::vector<int>;
  CHECK(passes(1, 4096) == Rows{1});
  CHECK(passes(200, 4096) == Rows{256});
  CHECK(passes(300, 4096) == Rows{512});
  CHECK(passes(700, 4096) == Rows{1024});
  CHECK(passes(2048, 4096) == Rows{2048});
  CHECK(passes(2056, 4096) == Rows{2048, 8});  // eight decodes beside a chunk
  CHECK(passes(3500, 4096) == Rows{4096});
  CHECK(passes(8192, 4096) == Rows{4096, 4096});
  CHECK(passes(8192, 2048) == Rows{2048, 2048, 2048, 2048});
  CHECK(passes(600, 256) == Rows{256, 256, 128});
}

TEST_CASE("passes are as wide as the chunks of prompts, within the engine's bounds",
          "[cpu][plan]") {
  CHECK(step_rows_of(1) == 256);
  CHECK(step_rows_of(256) == 256);
  CHECK(step_rows_of(257) == 512);
  CHECK(step_rows_of(2048) == 2048);
  CHECK(step_rows_of(65536) == 4096);
}

TEST_CASE("scores of index keys are made in slices that the buffer has room for", "[cpu][plan]") {
  for (int rows = 1; rows <= kMostStepRows; rows *= 2) {
    for (std::int64_t context = 4096; context <= std::int64_t{1} << 20; context *= 2) {
      const StepBucket bucket{.rows = rows, .context = context};
      const int slice = index_slice_rows(bucket);
      CAPTURE(rows, context, slice);
      CHECK(slice >= std::min(rows, kMostNarrowRows));
      CHECK(rows % slice == 0);
      CHECK(std::int64_t{slice} * (context / 4) <= most_index_scores(kMostStepRows, 1 << 20));
      CHECK(std::int64_t{slice} * (context / 4) <= most_index_scores(rows, context));
    }
  }
}

TEST_CASE("a wide step keeps its window entries beside the rings", "[cpu][plan]") {
  CHECK_FALSE(StepBucket{.rows = 256}.wide());
  CHECK(StepBucket{.rows = 512}.wide());
}
