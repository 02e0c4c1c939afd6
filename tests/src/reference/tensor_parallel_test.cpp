#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "src/reference/attention.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/model_rank.hpp"
#include "src/reference/moe.hpp"
#include "src/reference/tp_group.hpp"
#include "tests/src/reference/oracle_dump.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;
using namespace ingot::reference;

namespace {

double relative_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(difference / norm);
}

void add(std::vector<float>& sum, const std::vector<float>& part) {
  sum.resize(part.size());
  for (std::size_t i = 0; i < part.size(); ++i)
    sum[i] += part[i];
}

/// Sums of up to 1024 fp32 products in another order: the bound of every split sum.
constexpr double kSummationOrder = 1e-6;

}  // namespace

TEST_CASE("a rank's queries are its heads of the whole", "[cpu][reference][tp]") {
  const OracleDump dump(golden_dump("tiny-tp"));
  const SyntheticModel model("tiny-tp");
  const Checkpoint checkpoint = model.open();
  const ModelConfig& config = checkpoint.config();
  ThreadPool pool(1);
  const std::size_t rows = 5;
  const std::size_t hidden = static_cast<std::size_t>(config.hidden_size);
  const std::span<const float> x =
      std::span(dump.at("layers.1.attn_in").values).first(rows * hidden);
  RopeAngles angles(rope_frequencies(config, 4), std::vector<std::int64_t>{0, 1, 2, 3, 4});
  const auto queries_of = [&](int tp_rank, int tp_size) {
    const ModelWeights weights = model_weights(checkpoint, tp_rank, tp_size);
    const AttentionWeights& attn = weights.layers[1].attention;
    std::vector<float> qr(rows * static_cast<std::size_t>(config.q_lora_rank));
    query_latents(pool, config, attn, act_quantized(pool, x, config.hidden_size), qr);
    std::vector<float> q(rows * static_cast<std::size_t>(attn.heads() * config.head_dim));
    queries(pool, config, attn, act_quantized(pool, qr, config.q_lora_rank), angles, q);
    return q;
  };
  const std::vector<float> whole = queries_of(0, 1);
  const std::size_t width = whole.size() / rows;
  for (const int tp_size : {2, 4, 8}) {
    CAPTURE(tp_size);
    const std::size_t share = width / static_cast<std::size_t>(tp_size);
    for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
      const std::vector<float> part = queries_of(tp_rank, tp_size);
      for (std::size_t r = 0; r < rows; ++r) {
        const auto heads =
            std::span(whole).subspan(r * width + static_cast<std::size_t>(tp_rank) * share, share);
        CHECK(std::ranges::equal(std::span(part).subspan(r * share, share), heads));
      }
    }
  }
}

TEST_CASE("the ranks' partial sums differ from one rank's in summation order only",
          "[cpu][reference][tp]") {
  const OracleDump dump(golden_dump("tiny-tp"));
  const SyntheticModel model("tiny-tp");
  const Checkpoint checkpoint = model.open();
  const ModelConfig& config = checkpoint.config();
  ThreadPool pool(1);
  const DumpTensor& o = dump.at("layers.1.o");
  const DumpTensor& z = dump.at("layers.1.ffn_in");
  const auto rows = static_cast<std::size_t>(o.rows());
  std::vector<TokenId> tokens;
  for (const std::int64_t row : dump.rows()) {
    tokens.push_back(dump.tokens()[static_cast<std::size_t>(row)]);
  }
  const std::size_t hidden = static_cast<std::size_t>(config.hidden_size);
  const std::vector<float> z_quantized = act_quantized(pool, z.values, config.hidden_size);

  struct Partial {
    std::vector<float> projection, experts;
  };
  const auto sum_of_ranks = [&](int tp_size) {
    Partial sum;
    for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
      const ModelWeights weights = model_weights(checkpoint, tp_rank, tp_size);
      const LayerWeights& layer = weights.layers[1];
      const std::size_t share = o.width() / static_cast<std::size_t>(tp_size);
      std::vector<float> own_o;
      for (std::size_t r = 0; r < rows; ++r) {
        const float* from =
            o.row(static_cast<std::int64_t>(r)) + static_cast<std::size_t>(tp_rank) * share;
        own_o.insert(own_o.end(), from, from + share);
      }
      std::vector<float> projection(rows * hidden);
      output_projection(pool, config, layer.attention, own_o, projection);
      add(sum.projection, projection);
      const Routing routing = route(pool, config, layer.moe, z.values, tokens);
      std::vector<float> outputs(rows * hidden *
                                 static_cast<std::size_t>(config.experts_per_token + 1));
      expert_outputs(pool, config, layer.moe, routing, z_quantized, outputs);
      add(sum.experts, outputs);
    }
    return sum;
  };
  const Partial one = sum_of_ranks(1);
  for (const int tp_size : {2, 4, 8}) {
    CAPTURE(tp_size);
    const Partial split = sum_of_ranks(tp_size);
    CHECK(relative_error(split.projection, one.projection) < kSummationOrder);
    CHECK(relative_error(split.experts, one.experts) < kSummationOrder);
  }
}

TEST_CASE("the model gives the same answer over 1, 2, 4 and 8 ranks", "[cpu][reference][tp]") {
  const SyntheticModel model("tiny-tp");
  ReferenceEngine one = model.engine({.threads = 2, .tp_size = 1});
  const std::vector<TokenId> tokens = some_tokens(one.config().vocab_size, 140);
  const SequenceStep step{one.create_sequence(), tokens, LogitsOf::all};
  const StepLogits want = std::move(one.step({&step, 1})[0]);
  const StepLogits want_mtp = one.mtp_step(step.sequence, std::span(tokens).subspan(1));
  for (const int tp_size : {2, 4, 8}) {
    CAPTURE(tp_size);
    ReferenceEngine split = model.engine({.threads = 2, .tp_size = tp_size});
    const SequenceId sequence = split.create_sequence();
    const SequenceStep prompt{sequence, tokens, LogitsOf::all};
    const StepLogits got = std::move(split.step({&prompt, 1})[0]);
    std::vector<double> errors;
    int same_best = 0;
    for (int r = 0; r < got.rows; ++r) {
      errors.push_back(relative_error(got.row(r), want.row(r)));
      const auto best = [](std::span<const float> row) {
        return std::ranges::max_element(row) - row.begin();
      };
      if (best(got.row(r)) == best(want.row(r))) ++same_best;
    }
    std::ranges::sort(errors);
    // An order of summation that tips one rounding moves everything behind it, as everywhere.
    CHECK(errors[errors.size() / 2] < 0.05);
    CHECK(same_best >= got.rows * 90 / 100);
    CHECK(split.mtp_step(sequence, std::span(tokens).subspan(1)).values.size() ==
          want_mtp.values.size());
    // The ranks' replicated states are one state.
    for (int tp_rank = 1; tp_rank < tp_size; ++tp_rank) {
      CHECK(split.state(sequence, tp_rank).same_as(split.state(sequence, 0)));
    }
    // And cutting and rolling back are as exact as with one rank.
    const SequenceId cut = split.create_sequence();
    for (const auto part : {std::span(tokens).first(61), std::span(tokens).last(79)}) {
      const SequenceStep piece{cut, part, LogitsOf::last};
      split.step({&piece, 1});
    }
    split.rollback(cut, 100);
    const SequenceStep again{cut, std::span(tokens).subspan(100), LogitsOf::last};
    CHECK(std::ranges::equal(split.step({&again, 1})[0].row(0), got.row(got.rows - 1)));
  }
}

TEST_CASE("a TP size that cuts a group is refused with the valid ones", "[cpu][reference][tp]") {
  const SyntheticModel model("tiny-tp");
  for (const int tp_size : {-1, 0, 3, 16}) {
    CAPTURE(tp_size);
    try {
      model.engine({.threads = 1, .tp_size = tp_size});
      FAIL("no error");
    } catch (const EngineError& error) {
      CHECK(error.error().code == ErrorCode::invalid_argument);
      CHECK_THAT(error.what(), Catch::Contains("1, 2, 4, 8"));
    }
  }
}

TEST_CASE("an all-reduce adds in rank order", "[cpu][reference][tp]") {
  TpGroup group(4);
  // 1e8 + 1 - 1e8 + 1 = 1 in this order in fp32, whoever comes first.
  const float parts[] = {1e8F, 1.0F, -1e8F, 1.0F};
  std::vector<std::vector<float>> values(4);
  group.run([&](int tp_rank) {
    auto& own = values[static_cast<std::size_t>(tp_rank)];
    for (int round = 0; round < 50; ++round) {
      own.assign(7, parts[tp_rank]);
      group.all_reduce_sum(tp_rank, own);
    }
  });
  for (const std::vector<float>& rank : values)
    CHECK(rank == std::vector<float>(7, 1.0F));
}

TEST_CASE("a rank that throws stops the others, and its error comes out once",
          "[cpu][reference][tp]") {
  TpGroup group(4);
  std::vector<float> values[4];
  const auto body = [&](int tp_rank) {
    auto& own = values[tp_rank];
    own.assign(16, 1.0F);
    group.all_reduce_sum(tp_rank, own);
    if (tp_rank == 2) throw EngineError(ErrorCode::corrupt, "rank 2 has had enough");
    group.all_reduce_sum(tp_rank, own);
  };
  CHECK_THROWS_WITH(group.run(body), "rank 2 has had enough");
  CHECK(group.failed());
  CHECK_THROWS_WITH(group.run(body), Catch::Contains("failed in an earlier step"));
}
