#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/gpu/device_model.hpp"
#include "tests/support/libraries.hpp"

using namespace ingot;
using test::device_engine;
using test::run;
using test::some_tokens;

namespace {

/// Median relative error of rows, and the share of rows with the same best token.
std::pair<double, double> agreement(const StepLogits& got, const StepLogits& wanted) {
  std::vector<double> errors;
  int same = 0;
  for (int r = 0; r < wanted.rows; ++r) {
    const auto a = got.row(r), b = wanted.row(r);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      difference += std::pow(a[i] - b[i], 2.0);
      norm += std::pow(b[i], 2.0);
    }
    errors.push_back(std::sqrt(difference / norm));
    same += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
  }
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], static_cast<double>(same) / wanted.rows};
}

void check_ranks(int tp) {
  // Kernels have 8 heads of a rank at least.
  const test::SyntheticModel model =
      tp == 2 ? test::SyntheticModel("tiny-tp")
              : test::SyntheticModel("tiny-tp", {{"num_attention_heads", 8 * tp},
                                                 {"moe_intermediate_size", 256 * tp}});
  const DeviceOptions options{.max_context = 8192, .max_sequences = 4};
  const auto many = device_engine(model.open(), options, tp);
  if (!many) return;
  const auto one = device_engine(model.open(), options, 1);
  auto reference = model.engine({.tp_size = tp, .max_context = 8192});
  const auto tokens = some_tokens(many->config().vocab_size, 360);
  const auto a = many->create_sequence(), b = one->create_sequence(),
             c = reference.create_sequence();
  StepLogits ours{.rows = 0, .values = {}}, single = ours, exact = ours;
  const auto step = [&](std::span<const TokenId> part) {
    for (auto& [engine, sequence, all] :
         {std::tuple<Engine*, SequenceId, StepLogits*>{many.get(), a, &ours},
          {one.get(), b, &single},
          {&reference, c, &exact}}) {
      const auto got = run(*engine, sequence, part);
      all->values.insert(all->values.end(), got.values.begin(), got.values.end());
      all->rows += got.rows;
    }
  };
  step(std::span(tokens).first(300));  // more than a pass
  for (std::size_t i = 300; i < tokens.size(); ++i)
    step(std::span(tokens).subspan(i, 1));
  const auto [to_one, best_of_one] = agreement(ours, single);
  const auto [to_exact, best_of_exact] = agreement(ours, exact);
  fmt::print(
      "tp {}: median error {:.4f} to one GPU (argmax {:.3f}), {:.4f} to the reference "
      "({:.3f}); {} of {} steps from graphs\n",
      tp, to_one, best_of_one, to_exact, best_of_exact, many->stats().graph_steps,
      many->stats().steps);
  CHECK(to_one < 0.10);
  CHECK(to_exact < 0.10);
  CHECK(best_of_exact > 0.85);
  CHECK(many->stats().graph_steps > 50);

  // The same step again gives the same bits.
  const auto last = run(*many, a, std::span(tokens).first(1)).values;
  many->rollback(a, 360);
  CHECK(run(*many, a, std::span(tokens).first(1)).values == last);
}

}  // namespace

TEST_CASE("two GPUs give the logits of one, and of the reference at the same TP size",
          "[gpu][multi-gpu][tp]") {
  check_ranks(2);
}

TEST_CASE("four GPUs give the logits of one, and of the reference at the same TP size",
          "[gpu][multi-gpu][tp]") {
  check_ranks(4);
}

TEST_CASE("eight GPUs give the logits of one, and of the reference at the same TP size",
          "[gpu][multi-gpu][tp]") {
  check_ranks(8);
}

TEST_CASE("NCCL gives the bits that peer memory gives", "[gpu][multi-gpu][tp]") {
  const test::SyntheticModel model("tiny-tp");
  const auto tokens = some_tokens(512, 40);
  std::vector<std::vector<float>> logits[2];
  for (const bool over_nccl : {false, true}) {
    DeviceOptions options{.max_context = 4096, .max_sequences = 2};
    if (over_nccl) {
      REQUIRE(::setenv("NCCL_NVLS_ENABLE", "0", 1) == 0);
      REQUIRE(::setenv("NCCL_SOCKET_IFNAME", "lo", 0) == 0);
      options.nccl = value_or_throw(nccl::NcclApi::open(test::library_directories()));
    }
    const auto engine = device_engine(model.open(), options, 2);
    if (!engine) return;
    const auto sequence = engine->create_sequence();
    logits[over_nccl].push_back(run(*engine, sequence, std::span(tokens).first(20)).values);
    for (std::size_t i = 20; i < tokens.size(); ++i)
      logits[over_nccl].push_back(run(*engine, sequence, std::span(tokens).subspan(i, 1)).values);
  }
  CHECK(logits[0] == logits[1]);
}
