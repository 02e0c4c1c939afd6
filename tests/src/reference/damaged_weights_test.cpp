#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("a NaN scale is refused before the model runs", "[cpu][reference]") {
  const std::string name = GENERATE("layers.2.attn.wq_b.scale", "layers.1.ffn.experts.3.w2.scale");
  CAPTURE(name);
  const SyntheticModel model("tiny");
  model.damage(name, 1, "\xff");
  try {
    model.engine({.threads = 1});
    FAIL("no error");
  } catch (const EngineError& error) {
    CHECK(error.error().code == ErrorCode::corrupt);
    CHECK_THAT(error.what(), Catch::Contains(name));
  }
}

TEST_CASE("a NaN that appears while running stays in its own row and is counted",
          "[cpu][reference]") {
  const SyntheticModel model("tiny");
  const Checkpoint whole = model.open();
  const std::size_t row_bytes = static_cast<std::size_t>(whole.config().hidden_size) * 2;
  model.damage("embed.weight", 7 * row_bytes, "\xff\x7f");  // one bf16 NaN in token 7
  ReferenceEngine engine = model.engine({.threads = 2});
  const std::vector<TokenId> sound = some_tokens(7, 80);
  std::vector<TokenId> sick = sound;
  sick[70] = 7;
  const SequenceId alone = engine.create_sequence();
  const SequenceStep lone_step{alone, sound, LogitsOf::all};
  const StepLogits want = std::move(engine.step({&lone_step, 1})[0]);
  CHECK(engine.nan_rows() == 0);

  const SequenceStep batch[] = {{engine.create_sequence(), sick, LogitsOf::all},
                                {engine.create_sequence(), sound, LogitsOf::all}};
  const std::vector<StepLogits> got = engine.step(batch);
  CHECK(got[1].values == want.values);
  for (int r = 0; r < 80; ++r) {
    CAPTURE(r);
    const bool has_nan = std::ranges::any_of(got[0].row(r), [](float v) { return std::isnan(v); });
    CHECK(has_nan == (r >= 70));  // every later token of that sequence attends to it
    if (r < 70) CHECK(std::ranges::equal(got[0].row(r), want.row(r)));
  }
  CHECK(engine.nan_rows() == 10);
}
