#include "src/sampler/sampler.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "src/sampler/philox.hpp"

using namespace ingot;

namespace {

const TokenHistory kNothing;

TokenId pick(std::span<const float> logits, const SamplingParams& params, std::int64_t position,
             const TokenHistory& history = kNothing) {
  Sampler sampler;
  return value_or_throw(sampler.sample(logits, params, history, position)).id;
}

std::map<TokenId, int> draw(std::span<const float> logits, SamplingParams params, int count) {
  std::map<TokenId, int> seen;
  for (int i = 0; i < count; ++i)
    ++seen[pick(logits, params, i)];
  return seen;
}

}  // namespace

TEST_CASE("philox gives the published known answers", "[cpu][sampler]") {
  // Source: Random123, kat_vectors, philox4x32 with 10 rounds.
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("temperature 0 takes the likeliest token and the lowest id on ties", "[cpu][sampler]") {
  const std::vector<float> logits{1, 3, 2, 3, -5};
  SamplingParams params;
  params.temperature = 0;
  params.seed = GENERATE(0u, 1u, 99u);
  CHECK(pick(logits, params, 17) == 1);
}

TEST_CASE("the same seed and position give the same token whatever was sampled before",
          "[cpu][sampler]") {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i % 7);
  SamplingParams params;
  params.seed = 12345;
  Sampler busy;
  for (int position = 0; position < 50; ++position) {
    SamplingParams other = params;
    other.seed = 7;
    other.top_p = 0.5;
    value_or_throw(busy.sample(logits, other, kNothing, position * 3));
    CHECK(value_or_throw(busy.sample(logits, params, kNothing, position)).id ==
          pick(logits, params, position));
  }
}

TEST_CASE("draws follow the softmax at the given temperature", "[cpu][sampler]") {
  const std::vector<float> logits{0, 1, 2, -std::numeric_limits<float>::infinity(), 0.5f};
  SamplingParams params;
  params.temperature = GENERATE(0.5, 1.0, 2.0);
  CAPTURE(params.temperature);
  double total = 0;
  for (const float logit : logits)
    total += std::exp(logit / params.temperature);
  constexpr int kDraws = 20000;
  auto seen = draw(logits, params, kDraws);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double p = std::exp(logits[id] / params.temperature) / total;
    const double sigma = std::sqrt(p * (1 - p) / kDraws);
    CAPTURE(id, p);
    CHECK(std::abs(seen[static_cast<TokenId>(id)] / double{kDraws} - p) <= 4.5 * sigma);
  }
}

TEST_CASE("different seeds give different texts", "[cpu][sampler]") {
  const std::vector<float> logits(64, 0.0f);
  SamplingParams a, b;
  b.seed = std::uint64_t{1} << 40;  // the high half of the seed counts too
  int same = 0;
  for (int position = 0; position < 200; ++position) {
    same += pick(logits, a, position) == pick(logits, b, position);
  }
  CHECK(same < 20);
}

TEST_CASE("top-k keeps k tokens, the lowest ids where they tie", "[cpu][sampler]") {
  const std::vector<float> logits{1, 2, 2, 2, 0};
  SamplingParams params;
  params.top_k = 2;
  const auto seen = draw(logits, params, 500);
  CHECK(seen.size() == 2);
  CHECK(seen.contains(1));
  CHECK(seen.contains(2));
  params.top_k = 1;
  CHECK(draw(logits, params, 100).size() == 1);
  params.top_k = 100;
  CHECK(draw(logits, params, 2000).size() == 5);
}

TEST_CASE("top-p keeps the smallest set that reaches it, and always one token", "[cpu][sampler]") {
  // Probabilities 0.5, 0.3, 0.15, 0.05.
  std::vector<float> logits{std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
  SamplingParams params;
  params.top_p = 0.79;
  auto seen = draw(logits, params, 500);
  CHECK(seen.size() == 2);
  CHECK((seen.contains(1) && seen.contains(3)));
  params.top_p = 0.9;
  CHECK(draw(logits, params, 1000).size() == 3);
  params.top_p = 0;
  CHECK(draw(logits, params, 100) == std::map<TokenId, int>{{1, 100}});
  // Over what top-k left: 0.5 and 0.3 become 0.625 and 0.375.
  params.top_k = 2;
  params.top_p = 0.6;
  CHECK(draw(logits, params, 200).size() == 1);
}

TEST_CASE("top-p over a flat vocabulary sorts more than one portion", "[cpu][sampler]") {
  const std::vector<float> logits(20000, 1.0f);
  SamplingParams params;
  params.top_p = 0.75;
  for (int position = 0; position < 40; ++position) {
    CHECK(pick(logits, params, position) < 15001);  // ties: the lowest ids are kept
  }
}

TEST_CASE("min-p drops tokens below a share of the likeliest", "[cpu][sampler]") {
  std::vector<float> logits{std::log(0.6f), std::log(0.3f), std::log(0.1f)};
  SamplingParams params;
  params.min_p = 0.4;
  CHECK(draw(logits, params, 500).size() == 2);
  params.min_p = 1;
  CHECK(draw(logits, params, 100).size() == 1);
}

TEST_CASE("penalties and bias move the choice", "[cpu][sampler]") {
  const std::vector<float> logits{2.0f, 1.9f, -1.0f};
  SamplingParams params;
  params.temperature = 0;
  TokenHistory history;
  history.generated[0] = 2;

  SECTION("presence") {
    params.presence_penalty = 0.2;
    CHECK(pick(logits, params, 0, history) == 1);
    CHECK(pick(logits, params, 0) == 0);
  }
  SECTION("frequency counts") {
    params.frequency_penalty = 0.06;
    CHECK(pick(logits, params, 0, history) == 1);
    history.generated[0] = 1;
    CHECK(pick(logits, params, 0, history) == 0);
  }
  SECTION("repetition sees the prompt too, once each") {
    params.repetition_penalty = 1.1;
    history.generated.clear();
    history.prompt = {0};
    CHECK(pick(logits, params, 0, history) == 1);
    history.prompt = {0, 1};
    history.generated[0] = 5;
    CHECK(pick(logits, params, 0, history) == 0);
  }
  SECTION("bias") {
    params.logit_bias = {{2, 5.0}};
    CHECK(pick(logits, params, 0) == 2);
    params.logit_bias = {{0, -100.0}};
    CHECK(pick(logits, params, 0) == 1);
  }
}

TEST_CASE("log-probabilities are those of the raw logits", "[cpu][sampler]") {
  const std::vector<float> logits{0, 1, 2, 2};
  SamplingParams params;
  params.temperature = 0;
  params.top_logprobs = 3;
  params.logit_bias = {{0, 50.0}};
  Sampler sampler;
  const auto token = value_or_throw(sampler.sample(logits, params, kNothing, 0));
  CHECK(token.id == 0);
  const double log_sum = std::log(std::exp(0.0) + std::exp(1.0) + 2 * std::exp(2.0));
  REQUIRE(token.logprob);
  CHECK(token.logprob->logprob == Approx(0 - log_sum));
  REQUIRE(token.top.size() == 3);
  CHECK(token.top[0].id == 2);
  CHECK(token.top[1].id == 3);
  CHECK(token.top[2].id == 1);
  CHECK(token.top[1].logprob == Approx(2 - log_sum));
}

TEST_CASE("NaN, +inf and an impossible distribution are errors, never a token", "[cpu][sampler]") {
  SamplingParams params;
  params.temperature = GENERATE(0.0, 1.0);
  Sampler sampler;
  std::vector<float> logits{0, 1, 2};
  logits[1] =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const auto bad = sampler.sample(logits, params, kNothing, 0);
  REQUIRE(!bad);
  CHECK(bad.error().code == ErrorCode::corrupt);
  CHECK(bad.error().message.find("1 of 3 logits are NaN") != std::string::npos);
  const std::vector<float> none(3, -std::numeric_limits<float>::infinity());
  CHECK(!sampler.sample(none, params, kNothing, 0));
}

TEST_CASE("each sampling parameter outside its range is refused by name", "[cpu][sampler]") {
  SamplingParams params;
  CHECK(validate(params, 100));
  const auto refused = [&](std::string_view name) {
    const auto result = validate(params, 100);
    REQUIRE(!result);
    CHECK(result.error().code == ErrorCode::invalid_argument);
    CHECK(result.error().message.find(name) != std::string::npos);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  SECTION("temperature") {
    params.temperature = GENERATE_COPY(-0.1, 2.1, nan), refused("temperature");
  }
  SECTION("top_p") {
    params.top_p = GENERATE_COPY(-0.1, 2.0, nan), refused("top_p");
  }
  SECTION("top_k") {
    params.top_k = -1, refused("top_k");
  }
  SECTION("min_p") {
    params.min_p = GENERATE_COPY(1.5, nan), refused("min_p");
  }
  SECTION("repetition") {
    params.repetition_penalty = GENERATE_COPY(0.0, 11.0, nan), refused("repetition_penalty");
  }
  SECTION("presence") {
    params.presence_penalty = 2.5, refused("presence_penalty");
  }
  SECTION("frequency") {
    params.frequency_penalty = nan, refused("frequency_penalty");
  }
  SECTION("bias id") {
    params.logit_bias = {{100, 1.0}}, refused("logit_bias");
  }
  SECTION("bias value") {
    params.logit_bias = {{5, nan}}, refused("logit_bias");
  }
  SECTION("top_logprobs") {
    params.top_logprobs = GENERATE(-1, 21), refused("top_logprobs");
  }
  SECTION("empty stop") {
    params.stop = {""}, refused("stop");
  }
  SECTION("stop id") {
    params.stop_ids = {-1}, refused("stop_ids");
  }
  SECTION("max_tokens") {
    params.max_tokens = GENERATE(0, -5), refused("max_tokens");
  }
  SECTION("thinking_budget") {
    params.thinking_budget = -1, refused("thinking_budget");
  }
}
