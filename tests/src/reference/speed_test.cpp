#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

double tokens_per_second(std::size_t tokens, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(tokens) / took.count();
}

}  // namespace

// Hidden: it needs an idle machine. `build/tests/src_reference_tests "[.speed]"` runs it.
TEST_CASE("two cores prefill 1,000 and decode 60 tokens of tiny.json a second", "[.speed]") {
  const SyntheticModel model("tiny");
  ReferenceEngine engine = model.engine({.threads = 2});
  const auto prompt = some_tokens(engine.config().vocab_size, 2000);
  const SequenceId sequence = engine.create_sequence();
  const double prefill = tokens_per_second(prompt.size(), [&] {
    const SequenceStep step{sequence, prompt, LogitsOf::last};
    (void)engine.step({&step, 1});
  });
  const double decode = tokens_per_second(300, [&] {
    for (std::size_t i = 0; i < 300; ++i) {
      const SequenceStep step{sequence, std::span(prompt).subspan(i, 1), LogitsOf::last};
      (void)engine.step({&step, 1});
    }
  });
  fmt::print("tiny.json, 2 threads: prefill {:.0f}, decode at context 2,000 {:.0f} tokens/s\n",
             prefill, decode);
  CHECK(prefill >= 1000);
  CHECK(decode >= 60);
}
