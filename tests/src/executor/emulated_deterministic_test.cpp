// Deterministic steps on the emulator: few sizes, whose usual kernels differ.
#include <catch2/catch.hpp>

#include "src/executor/batch_free_kernels.hpp"
#include "src/executor/kernel_library.hpp"
#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/determinism_check.hpp"
#include "tests/support/emulator/emulated_card.hpp"

using namespace ingot;
using test::logged_answers;

namespace {

/// What runs for each launch of a step, by its place in StepKernels::all.
std::vector<std::string> untuned_variants(const executor::KernelLibrary& library,
                                          const StepKernels& kernels) {
  std::vector<std::string> variants;
  for (const StepKernels::Slot slot : kernels.all) {
    const jit::Variant& variant = library.request(slot).candidates.front();
    // Copies whole rows: where only some are wanted there is one more.
    if (variant.family != "embedding") variants.push_back(jit::describe(variant));
  }
  return variants;
}

}  // namespace

TEST_CASE("deterministic steps of every size run one and the same variant of each kernel",
          "[cpu][executor][deterministic]") {
  const auto card = test::emulated_card(std::uint64_t{1} << 30, 132);
  auto context = cu::Context::retain(card->driver(), 0);
  context.make_current();
  const auto store = test::emulated_kernels();
  executor::KernelLibrary library(context, *store, nullptr, {}, {});
  const ModelConfig config = value_or_throw(
      read_model_config(test::emulated_source_root() / "configs/deepseek-v4-flash/config.json"));
  const std::int64_t longest = config.max_position_embeddings;
  for (const int tp : {1, 8}) {
    CAPTURE(tp);
    std::vector<std::string> first, usual;
    int usual_differs = 0;
    for (const int rows : {1, 2, 16, 17, 64, 65, 256}) {
      for (const std::int64_t tokens : {std::int64_t{100}, std::int64_t{60000}, longest}) {
        for (const bool prompt : {false, true}) {
          CAPTURE(rows, tokens, prompt);
          StepBucket size = bucket_of({.rows = rows,
                                       .sequences = prompt ? 1 : rows,
                                       .sequence_rows = prompt ? rows : 1,
                                       .logit_rows = prompt ? 1 : rows,
                                       .context = tokens,
                                       .sampled = true,
                                       .batch_free = true},
                                      longest);
          const auto variants = untuned_variants(
              library, executor::want_batch_free(library, config, tp, size, false));
          if (first.empty()) first = variants;
          CHECK(variants == first);
          size.batch_free = false;
          const auto others = untuned_variants(
              library, StepKernels::want(library, config, step_problems(config, tp, size)));
          if (usual.empty()) usual = others;
          usual_differs += others != usual ? 1 : 0;
        }
      }
    }
    CHECK(first.size() > 25);
    // What the check above is worth: usual steps of other sizes do run other variants.
    CHECK(usual_differs > 20);
  }
}

TEST_CASE("with deterministic steps an answer's bits do not depend on its neighbours or chunks",
          "[cpu][executor][deterministic]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto engine = test::emulated_engine({card->driver()}, model.open());
  engine->set_deterministic(true);
  const auto asked = test::made_up_prompts(engine->config().vocab_size, 2, 3, 3);
  const auto alone = logged_answers(*engine, asked, 1, 16, 2);
  CHECK(logged_answers(*engine, asked, 2, 3, 2) == alone);
}
