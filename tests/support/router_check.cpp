#include "tests/support/router_check.hpp"

#include <limits>
#include <set>

#include "src/reference/linear.hpp"
#include "src/reference/moe.hpp"
#include "tests/support/kernel_check.hpp"

namespace ingot::test {
namespace {

constexpr int kNanToken = 3, kNanLogits = 5, kVocabulary = 50;

std::vector<std::uint16_t> small_integers(std::size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> values(count);
  for (auto& v : values)
    v = reference::bf16_bits((static_cast<float>(random() % 3) - 1) * scale);
  return values;
}

}  // namespace

void check_router_topk(KernelTarget& target, const kernels::RouterTopk::Problem& problem,
                       const kernels::RouterTopk::Params& params) {
  using Family = kernels::RouterTopk;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens);
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  const auto experts = static_cast<std::size_t>(problem.experts);
  const auto top = static_cast<std::size_t>(problem.top);
  ModelConfig config;
  config.num_experts = problem.experts;
  config.experts_per_token = problem.top;
  config.hidden_size = problem.hidden;
  config.routed_scaling_factor = 1.5F;

  auto z = small_integers(tokens * hidden, 1.0F, 3);
  auto gate = small_integers(experts * hidden, 0.125F, 5);
  std::vector<float> bias;
  for (std::size_t e = 0; e < experts; ++e)
    bias.push_back(static_cast<float>(e % 7) / 16);
  // Twins: the second half repeats the first, so every choice is between equals.
  std::copy_n(gate.begin(), experts / 2 * hidden,
              gate.begin() + static_cast<std::ptrdiff_t>(experts / 2 * hidden));
  std::copy_n(bias.begin(), experts / 2, bias.begin() + static_cast<std::ptrdiff_t>(experts / 2));
  if (problem.tokens > kNanToken) z[kNanToken * hidden + 17] = 0x7fc0;
  std::vector<int> ids;
  std::vector<TokenId> known_ids;
  for (int t = 0; t < problem.tokens; ++t) {
    ids.push_back(t == 1 ? -1 : t == 2 ? kVocabulary : (t * 11) % kVocabulary);
    known_ids.push_back(t == 1 || t == 2 ? 0 : ids.back());
  }
  std::mt19937 random(7);
  std::vector<std::uint16_t> table;
  for (int row = 0; row < kVocabulary; ++row) {
    std::set<std::uint16_t> chosen;
    while (chosen.size() < top)
      chosen.insert(static_cast<std::uint16_t>(random() % experts));
    table.insert(table.end(), chosen.begin(), chosen.end());
  }

  reference::ThreadPool pool(1);
  reference::MoeWeights weights;
  weights.gate = {.format = reference::WeightFormat::bf16,
                  .data = reinterpret_cast<const std::byte*>(gate.data()),
                  .stored_columns = problem.hidden,
                  .rows = problem.experts,
                  .columns = problem.hidden};
  if (problem.hash)
    weights.tid2eid = table;
  else
    weights.bias = bias;
  const auto z_values = bf16_values(z);
  const auto wanted = reference::route(pool, config, weights, z_values, known_ids);
  std::vector<float> logits(tokens * experts);
  reference::linear_f32(pool, weights.gate, z_values, logits);
  const bool has_nan_logits = !problem.gate && !problem.hash && problem.tokens > kNanLogits;
  if (has_nan_logits) {
    for (std::size_t e = 0; e < 3; ++e)
      logits[kNanLogits * experts + e] = std::numeric_limits<float>::quiet_NaN();
  }

  const auto workspace_words =
      static_cast<std::size_t>(Family::workspace_bytes(problem, params) / 4);
  kernels::RouterTopkArgs args{};
  args.z = target.place_as<const kernels::bf16>(z);
  args.gate = target.place_as<const kernels::bf16>(gate);
  args.logits = target.place_as<const float>(logits);
  args.bias = target.place_as<const float>(bias);
  args.table = target.place_as<const kernels::u16>(table);
  args.ids = target.place_as<const int>(ids);
  args.workspace =
      target.place_as<std::uint32_t>(std::vector<std::uint32_t>(workspace_words, 0xffffffffU));
  args.vocabulary = kVocabulary;
  args.tokens = problem.tokens;
  args.route_scale = config.routed_scaling_factor;
  const auto run = [&] {
    args.experts = target.place_as<int>(std::vector<int>(tokens * top + kGuard, -7));
    args.weights = target.place_as<float>(std::vector<float>(tokens * top + kGuard, kPoisonFloat));
    target.run(variant, Family::launch_shape(problem, params, target.limits()), &args);
    return std::pair{target.fetch_as<int>(args.experts, tokens * top + kGuard),
                     target.fetch_as<std::uint32_t>(args.weights, tokens * top + kGuard)};
  };
  const auto first = run();
  REQUIRE(run() == first);
  for (const auto word : target.fetch_as<std::uint32_t>(args.workspace, workspace_words))
    REQUIRE(word == 0xffffffffU);

  std::vector<float> got;
  for (const std::uint32_t bits : first.second)
    got.push_back(std::bit_cast<float>(bits));
  std::vector<float> wanted_weights = wanted.weights;
  for (std::size_t t = 0; t < tokens; ++t) {
    CAPTURE(t);
    const auto chosen = std::span(first.first).subspan(t * top, top);
    if (has_nan_logits && t == kNanLogits) {
      REQUIRE(std::set<int>(chosen.begin(), chosen.end()).size() == top);
      for (std::size_t i = 0; i < top; ++i) {
        REQUIRE((chosen[i] >= 3 && chosen[i] < problem.experts));
        REQUIRE(std::isfinite(got[t * top + i]));
        wanted_weights[t * top + i] = got[t * top + i];
      }
      continue;
    }
    for (std::size_t i = 0; i < top; ++i)
      REQUIRE(chosen[i] == wanted.experts[t * top + i]);
  }
  for (std::size_t i = tokens * top; i < first.first.size(); ++i)
    REQUIRE(first.first[i] == -7);
  compare_floats(got, wanted_weights, 1e-6F);
}

}  // namespace ingot::test
