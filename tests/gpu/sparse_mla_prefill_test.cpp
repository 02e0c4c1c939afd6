#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/sparse_mla_prefill.space.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.space.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/sparse_mla_cases.hpp"
#include "tests/support/sparse_mla_device.hpp"

using namespace ingot;
using kernels::SparseMlaDecodeProblem;

namespace {

constexpr std::size_t kNoExchange = 16;  // bytes: nothing of the buffers is used

struct Card {
  cu::Context context;
  cu::Stream stream;
  cu::DeviceLimits limits;

  explicit Card(const std::shared_ptr<const cu::DriverApi>& driver)
      : context(cu::Context::retain(driver, 0)),
        stream(cu::Stream::create(context)),
        limits(cu::limits_of(context.device())) {}
};

/// Calls `body(card)` where the family runs.
template <class Family, class Body>
void on_card(const Body& body) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const Card card(driver);
  if (!Family::runs_on(card.limits) &&
      test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  body(card);
}

struct Compiled {
  std::string name;
  jit::Kernel kernel;
  std::vector<cu::LaunchShape> shapes;  ///< that must give the same bits
};
struct Set {
  SparseMlaDecodeProblem problem;
  std::vector<Compiled> variants;
  std::optional<Compiled> decode;  ///< the default of the decode family, not split
};
/// Of each problem the default, then the ends of the axes; persistent ones also with fewer blocks
/// than items. All are compiled side by side.
template <class Family>
std::vector<Set> compile(const Card& card, const std::vector<SparseMlaDecodeProblem>& problems,
                         std::size_t most_variants) {
  using Decode = kernels::SparseMlaDecode;
  std::vector<Set> sets;
  std::vector<jit::Variant> variants;
  std::vector<std::vector<typename Family::Params>> chosen;
  for (const auto& problem : problems) {
    chosen.push_back(Family::space(problem, card.limits).extremes());
    if (chosen.back().size() > most_variants) chosen.back().resize(most_variants);
    for (const auto& params : chosen.back())
      variants.push_back({std::string(Family::kStem), jit::param_values(params)});
    auto decode = Decode::default_params(problem, card.limits);
    decode.NSPLIT = 1;
    variants.push_back({std::string(Decode::kStem), jit::param_values(decode)});
  }
  auto loaded = test::load_variants(card.context, variants);
  std::size_t at = 0;
  const auto take = [&](std::vector<cu::LaunchShape> shapes) {
    loaded[at].prefer_shared_memory(card.context);
    Compiled compiled{jit::describe(variants[at]), std::move(loaded[at]), std::move(shapes)};
    ++at;
    return compiled;
  };
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Set set{problems[i], {}, {}};
    for (const auto& params : chosen[i]) {
      const auto shape = Family::launch_shape(problems[i], params, card.limits);
      std::vector<cu::LaunchShape> shapes{shape};
      if constexpr (requires { Family::items(problems[i], params); }) {
        shapes.push_back(shape);
        shapes.back().grid = {2};
      }
      set.variants.push_back(take(std::move(shapes)));
    }
    auto decode = Decode::default_params(problems[i], card.limits);
    decode.NSPLIT = 1;
    set.decode = take({Decode::launch_shape(problems[i], decode)});
    sets.push_back(std::move(set));
  }
  return sets;
}

test::SparseMlaShape shape_of(const SparseMlaDecodeProblem& problem) {
  return {.rows = problem.rows,
          .heads = problem.heads,
          .window_slots = problem.window_slots,
          .selected_slots = problem.selected_slots,
          .window_layout = test::window_layout(problem),
          .selected_layout = test::selected_layout(problem)};
}

std::vector<double> values_of(const std::vector<std::uint16_t>& bits) {
  std::vector<double> values;
  for (const std::uint16_t b : bits)
    values.push_back(test::bf16_value(b));
  return values;
}

SparseMlaDecodeProblem beside(SparseMlaDecodeProblem problem, int stride) {
  problem.entry_stride = stride;
  problem.scales_beside = true;
  problem.window_page_bytes = problem.window_page_entries * stride;
  problem.selected_page_bytes = problem.selected_page_entries * stride;
  return problem;
}

/// The scales behind a page's entries, as FlashMLA lays them out.
SparseMlaDecodeProblem behind(SparseMlaDecodeProblem problem, int selected_page_entries) {
  const auto page_bytes = [](int entries) { return (entries * 584 + 575) / 576 * 576; };
  problem.entry_stride = 576;
  problem.scales_beside = false;
  problem.window_page_bytes = page_bytes(problem.window_page_entries);
  problem.selected_page_entries = selected_page_entries;
  problem.selected_page_bytes = page_bytes(selected_page_entries);
  return problem;
}

std::vector<SparseMlaDecodeProblem> problems() {
  return {
      beside({.rows = 3, .heads = 64, .selected_slots = 64}, 608),
      behind({.rows = 3, .heads = 64, .selected_slots = 200}, 64),
      beside(
          {.rows = 5, .heads = 32, .selected_slots = 0, .has_sink = false, .inverse_rope = false},
          592),
      beside({.rows = 3, .heads = 16, .selected_slots = 512}, 608),
      behind({.rows = 9, .heads = 8, .selected_slots = 72}, 2)};
}

template <class Family>
void check_family(const Card& card, const std::vector<SparseMlaDecodeProblem>& problems,
                  std::size_t most_variants) {
  double worst = 0, apart = 0;
  for (const Set& set : compile<Family>(card, problems, most_variants)) {
    for (const auto& one : test::sparse_mla_cases(shape_of(set.problem))) {
      const test::SparseMlaDevice device(card.context, card.stream, one.inputs, kNoExchange,
                                         kNoExchange);
      const auto reference =
          test::sparse_mla_reference(one.inputs, set.problem.has_sink, set.problem.inverse_rope);
      const auto decoded = values_of(device.run(set.decode->kernel, set.decode->shapes.front()));
      for (const Compiled& variant : set.variants) {
        CAPTURE(one.name, variant.name);
        const auto got = device.run(variant.kernel, variant.shapes.front());
        const auto difference = test::compare(got, reference);
        CAPTURE(difference.relative, difference.worst_group);
        REQUIRE_FALSE(difference.nan_differs);
        REQUIRE(difference.relative <= one.tolerance);
        REQUIRE(difference.worst_group <= one.group_tolerance);
        const auto to_decode = test::compare(got, decoded);
        CAPTURE(to_decode.relative);
        REQUIRE_FALSE(to_decode.nan_differs);
        REQUIRE(to_decode.relative <= 1.5 * one.tolerance);  // both are rounded
        for (const auto& shape : variant.shapes)
          for (int turn = 0; turn < 2; ++turn)
            REQUIRE(device.run(variant.kernel, shape) == got);
        worst = std::max(worst, difference.relative);
        apart = std::max(apart, to_decode.relative);
      }
      REQUIRE(device.exchange_is_clean());
    }
  }
  fmt::print("{}: worst relative error {:.2e}, {:.2e} from decode\n", Family::kStem, worst, apart);
}

/// More rows than run at once, and a list of contiguous keys as long as a million tokens have.
template <class Family>
void check_sizes(const Card& card) {
  const auto sets = compile<Family>(
      card,
      {beside({.rows = 700, .heads = 8, .window_slots = 64, .selected_slots = 16}, 608),
       beside({.rows = 3, .heads = 16, .selected_slots = 8192}, 608)},
      1);
  for (const Set& set : sets) {
    auto shape = shape_of(set.problem);
    shape.selected_entries = 8192;
    const auto inputs = test::random_inputs(shape);
    const test::SparseMlaDevice device(card.context, card.stream, inputs, kNoExchange, kNoExchange);
    const auto reference = test::sparse_mla_reference(inputs, true, true);
    for (const Compiled& variant : set.variants) {
      CAPTURE(variant.name);
      const auto got = device.run(variant.kernel, variant.shapes.front());
      const auto difference = test::compare(got, reference);
      CAPTURE(difference.relative);
      REQUIRE_FALSE(difference.nan_differs);
      REQUIRE(difference.relative <= 3e-3);
      for (const auto& launch : variant.shapes)
        REQUIRE(device.run(variant.kernel, launch) == got);
    }
  }
}

/// Few launches, every buffer as small as it may be: for memcheck and racecheck.
template <class Family>
void check_bounds(const Card& card) {
  const auto sets =
      compile<Family>(card, {behind({.rows = 3, .heads = 16, .selected_slots = 64}, 64)}, 2);
  const Set& set = sets.front();
  int checked = 0;
  for (const auto& one : test::sparse_mla_cases(shape_of(set.problem))) {
    if (one.name != "lists that fill no tile, garbage behind them" &&
        one.name != "unused slots among used ones" && one.name != "a row without keys" &&
        one.name != "the first and the last entry of the pools")
      continue;
    ++checked;
    const auto reference = test::sparse_mla_reference(one.inputs, true, true);
    const test::SparseMlaDevice device(card.context, card.stream, one.inputs, kNoExchange,
                                       kNoExchange);
    for (const Compiled& variant : set.variants)
      for (const auto& shape : variant.shapes) {
        CAPTURE(one.name, variant.name);
        const auto difference = test::compare(device.run(variant.kernel, shape), reference);
        CAPTURE(difference.relative);
        REQUIRE_FALSE(difference.nan_differs);
        REQUIRE(difference.relative <= one.tolerance);
      }
  }
  REQUIRE(checked == 4);
}

}  // namespace

TEST_CASE("sparse MLA prefill on wgmma agrees with the reference and with decode in every case",
          "[gpu][kernel]") {
  on_card<kernels::SparseMlaPrefillSm90>(
      [](const Card& card) { check_family<kernels::SparseMlaPrefillSm90>(card, problems(), 3); });
}
TEST_CASE("sparse MLA prefill on mma.sync agrees with the reference and with decode in every case",
          "[gpu][kernel]") {
  on_card<kernels::SparseMlaPrefill>(
      [](const Card& card) { check_family<kernels::SparseMlaPrefill>(card, problems(), 2); });
}
TEST_CASE("sparse MLA prefill on wgmma works on many rows and on long lists", "[gpu][kernel]") {
  on_card<kernels::SparseMlaPrefillSm90>(
      [](const Card& card) { check_sizes<kernels::SparseMlaPrefillSm90>(card); });
}
TEST_CASE("sparse MLA prefill on mma.sync works on many rows and on long lists", "[gpu][kernel]") {
  on_card<kernels::SparseMlaPrefill>(
      [](const Card& card) { check_sizes<kernels::SparseMlaPrefill>(card); });
}
TEST_CASE("sparse MLA prefill on wgmma stays within its buffers", "[gpu][kernel][sanitize]") {
  on_card<kernels::SparseMlaPrefillSm90>(
      [](const Card& card) { check_bounds<kernels::SparseMlaPrefillSm90>(card); });
}
TEST_CASE("sparse MLA prefill on mma.sync stays within its buffers", "[gpu][kernel][sanitize]") {
  on_card<kernels::SparseMlaPrefill>(
      [](const Card& card) { check_bounds<kernels::SparseMlaPrefill>(card); });
}
