#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

/// Overwrites bytes of a tensor in the model's file.
void damage(const SyntheticModel& model, const std::string& tensor, std::size_t offset,
            std::string_view bytes) {
  const Checkpoint checkpoint = model.open();
  const std::filesystem::path file = model.directory() / "model.safetensors";
  const std::string before = read_file(file);
  // The tensor's place in the file: its mapped bytes, counted from those of the last tensor, which
  // end the file.
  const auto end = checkpoint.tensors().back().bytes;
  const std::byte* file_end = end.data() + end.size();
  const auto from_end = static_cast<std::size_t>(file_end - checkpoint.tensor(tensor).bytes.data());
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(before.size() - from_end + offset));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.flush());
}

}  // namespace

TEST_CASE("a NaN scale is refused before the model runs", "[cpu][reference]") {
  const std::string name = GENERATE("layers.2.attn.wq_b.scale", "layers.1.ffn.experts.3.w2.scale");
  CAPTURE(name);
  const SyntheticModel model("tiny");
  damage(model, name, 1, "\xff");
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
  damage(model, "embed.weight", 7 * row_bytes, "\xff\x7f");  // one bf16 NaN in token 7
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
