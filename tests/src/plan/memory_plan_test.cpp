#include "src/plan/memory_plan.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

namespace {

/// A model whose pages cost 1,000 and 32,000 bytes, so that 8,192 tokens cost 64,000.
const MemoryCosts kCosts{.weights = 1'000'000,
                         .buffers = 200'000,
                         .slot = 10'000,
                         .csa_page = 1'000,
                         .hca_page = 32'000,
                         .reserve = 100'000};

constexpr std::uint64_t kFixed = 1'300'000;  // weights, buffers, reserve
constexpr std::uint64_t kSequence = 43'000;  // a slot and a page of each kind

std::string refusal(const MemoryWish& wish, std::uint64_t bytes) {
  const auto plan = plan_memory("loading it", kCosts, wish, bytes);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::exhausted);
  CHECK(plan.error().message.find('\n') == std::string::npos);
  return plan.error().message;
}

}  // namespace

TEST_CASE("a memory plan gives the pools what weights, buffers and slots leave", "[cpu][plan]") {
  // Room for three units of context beside two sequences, and a little.
  const std::uint64_t bytes = kFixed + 2 * kSequence + 3 * 64'000 + 5'000;
  const MemoryWish wish{.sequences = 2, .max_context = 16384};
  const MemoryPlan plan = value_or_throw(plan_memory("loading it", kCosts, wish, bytes));
  CHECK(plan.csa_pages == 3 * 32 + 2);
  CHECK(plan.hca_pages == 3 + 2);
  CHECK(plan.context_tokens() == 98 * 256);
  CHECK(plan.used_bytes() == bytes - 5'000);
  CHECK(plan.slot_bytes() == 20'000);
}

TEST_CASE("a memory plan takes no more than all sequences can fill", "[cpu][plan]") {
  const MemoryWish wish{.sequences = 2, .max_context = 8192};
  const MemoryPlan plan = value_or_throw(plan_memory("loading it", kCosts, wish, 1ULL << 40));
  CHECK(plan.csa_pages == 2 * 32 + 2);
  const MemoryWish less{.sequences = 2, .max_context = 8192, .context_tokens = 100};
  CHECK(value_or_throw(plan_memory("loading it", kCosts, less, 1ULL << 40)).csa_pages == 32 + 2);
}

TEST_CASE("a memory plan that does not fit says by how much, and what would", "[cpu][plan]") {
  using Catch::Contains;
  const std::uint64_t scale = 1'000'000;  // gigabytes are what people read
  const MemoryCosts big{.weights = 100 * 10 * scale * 100,
                        .buffers = 2'000 * scale,
                        .slot = 10 * scale,
                        .csa_page = 1 * scale,
                        .hca_page = 32 * scale,
                        .reserve = 1'000 * scale};
  const auto message = [&](const MemoryWish& wish, std::uint64_t bytes) {
    const auto plan = plan_memory("loading it", big, wish, bytes);
    REQUIRE_FALSE(plan);
    return plan.error().message;
  };
  // 103 GB without state. Of four units one fits.
  const std::uint64_t one = 103'000 * scale + 43 * scale + 64 * scale;
  CHECK_THAT(message({.sequences = 1, .max_context = 4 * 8192}, one),
             Contains("loading it: 1 sequence with a context of 32768 tokens need 103.3 GB "
                      "(100.0 GB of weights, 3.0 GB of buffers and reserve, 0.3 GB of state), "
                      "103.1 GB are free: 0.2 GB too much; 8192 tokens of context would fit: lower "
                      "--context"));
  // Two sequences' slots fit, not three.
  const std::uint64_t two = 103'000 * scale + 2 * 43 * scale + 64 * scale;
  CHECK_THAT(message({.sequences = 40, .max_context = 8192}, two),
             Contains("2 sequences would fit: lower --max-batch"));
  CHECK_THAT(message({.sequences = 40, .max_context = 4 * 8192}, one),
             Contains("one sequence of 8192 tokens would fit: lower --context and --max-batch"));
  CHECK_THAT(message({.sequences = 1, .max_context = 8192}, 90'000 * scale),
             Contains("nothing would fit: use a GPU with more memory, or more of them with --tp"));
}

TEST_CASE("a memory plan holds the context that was asked for, or refuses", "[cpu][plan]") {
  const std::uint64_t bytes = kFixed + 2 * kSequence + 3 * 64'000;
  const MemoryWish exact{.sequences = 2, .max_context = 32768, .context_tokens = 32768};
  CHECK_THAT(refusal(exact, bytes), Catch::Contains("24576 tokens of context would fit"));
  CHECK(plan_memory("loading it", kCosts, exact, bytes + 64'000));
  const auto none = plan_memory("loading it", kCosts, {.sequences = 0, .max_context = 1}, bytes);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::invalid_argument);
}

TEST_CASE("a model without compressed layers needs no pages", "[cpu][plan]") {
  MemoryCosts costs = kCosts;
  costs.csa_page = costs.hca_page = 0;
  const MemoryPlan plan = value_or_throw(plan_memory(
      "loading it", costs, {.sequences = 4, .max_context = 1 << 20}, kFixed + 4 * 10'000));
  CHECK(plan.csa_pages == 0);
  CHECK(plan.hca_pages == 0);
  CHECK(plan.used_bytes() == kFixed + 40'000);
}
