#include <catch2/catch.hpp>

#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"

using namespace ingot;

namespace {

std::vector<float> run(Engine& engine, SequenceId sequence, std::span<const TokenId> tokens) {
  const SequenceStep step{sequence, tokens, LogitsOf::all};
  return std::move(engine.step({&step, 1})[0].values);
}

std::string saved(const Engine& engine, SequenceId sequence) {
  return value_or_throw(engine.snapshot_bytes(sequence));
}

void check_refused(Engine& engine, const std::string& bytes, ErrorCode code) {
  const auto restored = engine.restore(bytes);
  REQUIRE_FALSE(restored);
  CHECK(restored.error().code == code);
}

}  // namespace

TEST_CASE("a restored sequence is to the byte what a cold run makes, and goes on as it does",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  std::string bytes;
  std::vector<float> next;
  const auto tokens = test::some_tokens(512, 7);
  const auto all = std::span(tokens);
  {
    const auto engine = test::emulated_engine({card->driver()}, model.open());
    const auto sequence = engine->create_sequence();
    CHECK(saved(*engine, sequence) != "");
    run(*engine, sequence, all.first(5));
    run(*engine, sequence, all.subspan(5, 1));
    bytes = saved(*engine, sequence);
    next = run(*engine, sequence, all.subspan(6, 1));

    // Something else lay in the place before, and other pages are taken.
    const auto restored = value_or_throw(engine->restore(bytes));
    CHECK(engine->length(restored) == 6);
    CHECK(saved(*engine, restored) == bytes);
    CHECK(run(*engine, restored, all.subspan(6, 1)) == next);
    CHECK(saved(*engine, restored) == saved(*engine, sequence));
    engine->rollback(restored, 6);
    CHECK(run(*engine, restored, all.subspan(6, 1)) == next);

    check_refused(*engine, "", ErrorCode::unsupported);
    check_refused(*engine, "ingot reference state 1", ErrorCode::unsupported);
    check_refused(*engine, bytes.substr(0, bytes.size() - 1), ErrorCode::corrupt);
    check_refused(*engine, bytes + "x", ErrorCode::corrupt);
    for (std::size_t cut = 30; cut < bytes.size(); cut += bytes.size() / 17)
      CHECK_FALSE(engine->restore(bytes.substr(0, cut)));
    // There are three places.
    value_or_throw(engine->restore(bytes));
    check_refused(*engine, bytes, ErrorCode::exhausted);
  }
  const auto again = test::emulated_engine({card->driver()}, model.open());
  const auto restored = value_or_throw(again->restore(bytes));
  const auto cold = again->create_sequence();
  run(*again, cold, all.first(5));
  run(*again, cold, all.subspan(5, 1));
  CHECK(saved(*again, cold) == bytes);
  CHECK(run(*again, restored, all.subspan(6, 1)) == next);
}
