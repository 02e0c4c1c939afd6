#include "tests/support/shared_expert_check.hpp"

#include <limits>
#include <set>

#include "src/reference/linear.hpp"
#include "src/reference/moe.hpp"
#include "tests/support/kernel_check.hpp"
#include "tools/kernel_bench/linear_data.hpp"

namespace ingot::test {
namespace {

constexpr int kNanToken = 2, kVocabulary = 50;
constexpr float kLimit = 10.0F;

/// Whole numbers from -most to most, times `unit`.
std::vector<std::uint16_t> small_integers(std::size_t count, int most, float unit, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> values(count);
  for (auto& v : values) {
    const int i = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
    v = reference::bf16_bits(static_cast<float>(i) * unit);
  }
  return values;
}

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float v : values)
    bits.push_back(reference::bf16_bits(v));
  return bits;
}

}  // namespace

void check_shared_expert_few(KernelTarget& target, const kernels::SharedExpertFew::Problem& problem,
                             const kernels::SharedExpertFew::Params& params) {
  using Family = kernels::SharedExpertFew;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens);
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  const auto inter = static_cast<std::size_t>(problem.inter);
  const auto experts = static_cast<std::size_t>(problem.experts);
  const auto top = static_cast<std::size_t>(problem.top);
  ModelConfig config;
  config.num_experts = problem.experts;
  config.experts_per_token = problem.top;
  config.hidden_size = problem.hidden;
  config.routed_scaling_factor = 1.5F;

  // Twins among the router's rows: the second half repeats the first, so every choice is between
  // equals.
  auto z = small_integers(tokens * hidden, 4, 1.0F, 3);
  auto router = small_integers(experts * hidden, 1, 0.125F, 5);
  std::vector<float> bias;
  for (std::size_t e = 0; e < experts; ++e)
    bias.push_back(static_cast<float>(e % 7) / 16);
  std::copy_n(router.begin(), experts / 2 * hidden,
              router.begin() + static_cast<std::ptrdiff_t>(experts / 2 * hidden));
  std::copy_n(bias.begin(), experts / 2, bias.begin() + static_cast<std::ptrdiff_t>(experts / 2));
  std::vector<int> ids;
  std::vector<TokenId> known_ids;
  for (int t = 0; t < problem.tokens; ++t) {
    ids.push_back(t == 1 ? -1 : t == 3 ? kVocabulary : (t * 11 + 5) % kVocabulary);
    known_ids.push_back(t == 1 || t == 3 ? 0 : ids.back());
  }
  std::mt19937 random(7);
  std::vector<std::uint16_t> table;
  for (int row = 0; row < kVocabulary; ++row) {
    std::set<std::uint16_t> chosen;
    while (chosen.size() < top)
      chosen.insert(static_cast<std::uint16_t>(random() % experts));
    table.insert(table.end(), chosen.begin(), chosen.end());
  }
  const auto gate = bench::random_weights(problem.inter, problem.hidden, 11);
  const auto up = bench::random_weights(problem.inter, problem.hidden, 12);
  const auto down = bench::random_weights(problem.hidden, problem.inter, 13);

  // The reference, of a token that holds NaN without it.
  const auto input = bench::quantized_input(z, problem.tokens, problem.hidden);
  auto h = bench::reference_linear(gate, input);
  const auto by = bench::reference_linear(up, input);
  for (std::size_t t = 0; t < tokens; ++t)
    reference::expert_activation(std::span(h).subspan(t * inter, inter),
                                 std::span(by).subspan(t * inter, inter), kLimit, 1.0F);
  const auto wanted = bench::reference_linear(
      down, bench::quantized_input(bf16_of(h), problem.tokens, problem.inter));
  auto input_scales = input.tile_scales();
  const bool has_nan = problem.tokens > kNanToken;
  if (has_nan) {
    z[kNanToken * hidden + 17] = 0x7fc0;
    input_scales[kNanToken] = std::numeric_limits<float>::quiet_NaN();
  }
  reference::ThreadPool pool(1);
  reference::MoeWeights weights;
  weights.gate = {.format = reference::WeightFormat::bf16,
                  .data = reinterpret_cast<const std::byte*>(router.data()),
                  .stored_columns = problem.hidden,
                  .rows = problem.experts,
                  .columns = problem.hidden};
  if (problem.hash)
    weights.tid2eid = table;
  else
    weights.bias = bias;
  const auto routing = reference::route(pool, config, weights, bf16_values(z), known_ids);

  const auto workspace_bytes = static_cast<std::size_t>(Family::workspace_bytes(problem, params));
  const auto weight = [&](const bench::LinearWeights& of) {
    return kernels::SharedExpertFewWeight{target.place_as<const kernels::fp8_e4m3>(of.tiles()),
                                          target.place_as<const kernels::ue8m0>(of.scales)};
  };
  kernels::SharedExpertFewArgs args{};
  args.router.z = target.place_as<const kernels::bf16>(z);
  args.router.gate = target.place_as<const kernels::bf16>(router);
  args.router.bias = target.place_as<const float>(bias);
  args.router.table = target.place_as<const kernels::u16>(table);
  args.router.ids = target.place_as<const int>(ids);
  args.router.workspace =
      target.place_as<std::uint8_t>(std::vector<std::uint8_t>(workspace_bytes, 0xff));
  args.router.vocabulary = kVocabulary;
  args.router.tokens = problem.tokens;
  args.router.route_scale = config.routed_scaling_factor;
  args.gate = weight(gate);
  args.up = weight(up);
  args.down = weight(down);
  args.xq = target.place_as<const kernels::fp8_e4m3>(input.tiles());
  args.x_scale = target.place_as<const float>(input_scales);
  args.x_rows = input.rows;
  args.limit = kLimit;
  struct Results {
    std::vector<std::uint16_t> out;
    std::vector<int> experts;
    std::vector<std::uint32_t> weights;
    bool operator==(const Results&) const = default;
  };
  const auto run = [&] {
    args.out = target.place_as<kernels::bf16>(
        std::vector<std::uint16_t>(tokens * hidden + kGuard, bench::kPoison));
    args.router.experts = target.place_as<int>(std::vector<int>(tokens * top + kGuard, -7));
    args.router.weights =
        target.place_as<float>(std::vector<float>(tokens * top + kGuard, kPoisonFloat));
    target.run(variant, Family::launch_shape(problem, params), &args);
    return Results{target.fetch_as<std::uint16_t>(args.out, tokens * hidden + kGuard),
                   target.fetch_as<int>(args.router.experts, tokens * top + kGuard),
                   target.fetch_as<std::uint32_t>(args.router.weights, tokens * top + kGuard)};
  };
  const Results first = run();
  REQUIRE(run() == first);
  for (const auto byte : target.fetch_as<std::uint8_t>(args.router.workspace, workspace_bytes))
    REQUIRE(byte == 0xff);

  auto out = first.out;
  for (std::size_t i = tokens * hidden; i < out.size(); ++i)
    REQUIRE(out[i] == bench::kPoison);
  out.resize(tokens * hidden);
  if (has_nan) {
    for (std::size_t i = kNanToken * hidden; i < (kNanToken + 1) * hidden; ++i) {
      REQUIRE((out[i] & 0x7fff) > 0x7f80);
      REQUIRE(out[i] != bench::kPoison);
      out[i] = reference::bf16_bits(wanted[i]);
    }
  }
  const bench::Comparison compared = bench::compare(out, wanted, problem.hidden);
  CAPTURE(compared.worst, compared.unwritten, compared.wrong_kind);
  REQUIRE(compared.good());

  for (std::size_t i = 0; i < tokens * top; ++i)
    REQUIRE(first.experts[i] == routing.experts[i]);
  for (std::size_t i = tokens * top; i < first.experts.size(); ++i)
    REQUIRE(first.experts[i] == -7);
  std::vector<float> got;
  for (const std::uint32_t bits : first.weights)
    got.push_back(std::bit_cast<float>(bits));
  compare_floats(got, routing.weights, 1e-6F);
}

}  // namespace ingot::test
