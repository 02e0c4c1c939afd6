#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <span>

#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/sparse_mla_decode_simt.space.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/sparse_mla_cases.hpp"
#include "tests/support/sparse_mla_device.hpp"

using namespace ingot;
using kernels::SparseMlaDecodeProblem;

namespace {

using test::selected_layout, test::window_layout;
using Device = test::SparseMlaDevice;

/// What tells the variants of one problem apart, so that they are compiled once for all cases.
template <class Family>
struct Compiled {
  typename Family::Params params;
  jit::Kernel kernel;
};
template <class Family>
std::vector<Compiled<Family>> compile(const cu::Context& context,
                                      const SparseMlaDecodeProblem& problem,
                                      std::size_t most_variants) {
  auto chosen = Family::space(problem, cu::limits_of(context.device())).extremes();
  if (chosen.size() > most_variants) chosen.resize(most_variants);
  std::vector<jit::Variant> variants;
  for (const auto& params : chosen)
    variants.push_back({std::string(Family::kStem), jit::param_values(params)});
  auto kernels = test::load_variants(context, variants);
  std::vector<Compiled<Family>> compiled;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    kernels[i].prefer_shared_memory(context);
    compiled.push_back({chosen[i], std::move(kernels[i])});
  }
  return compiled;
}

template <class Family>
void check_problem(const cu::Context& context, const cu::Stream& stream,
                   const SparseMlaDecodeProblem& problem, std::size_t most_variants,
                   double& worst) {
  const auto variants = compile<Family>(context, problem, most_variants);
  const test::SparseMlaShape shape{.rows = problem.rows,
                                   .heads = problem.heads,
                                   .window_slots = problem.window_slots,
                                   .selected_slots = problem.selected_slots,
                                   .window_layout = window_layout(problem),
                                   .selected_layout = selected_layout(problem)};
  for (const auto& one : test::sparse_mla_cases(shape)) {
    const Device device(context, stream, one.inputs);
    const auto reference =
        test::sparse_mla_reference(one.inputs, problem.has_sink, problem.inverse_rope);
    for (const auto& variant : variants) {
      CAPTURE(one.name,
              jit::describe({std::string(Family::kStem), jit::param_values(variant.params)}));
      const auto launch_shape = Family::launch_shape(problem, variant.params);
      const auto got = device.run(variant.kernel, launch_shape);
      const auto difference = test::compare(got, reference);
      CAPTURE(difference.relative, difference.worst_group);
      REQUIRE_FALSE(difference.nan_differs);
      REQUIRE(difference.relative <= one.tolerance);
      REQUIRE(difference.worst_group <= one.group_tolerance);
      for (int turn = 0; turn < 3; ++turn)
        REQUIRE(device.run(variant.kernel, launch_shape) == got);
      worst = std::max(worst, difference.relative);
    }
    REQUIRE(device.exchange_is_clean());
  }
}

// As FlashMLA has it: the scales of a page's entries behind the last of them.
SparseMlaDecodeProblem planar(SparseMlaDecodeProblem problem) {
  const auto page_bytes = [](int entries) { return (entries * 584 + 575) / 576 * 576; };
  problem.entry_stride = 576;
  problem.scales_beside = false;
  problem.window_page_bytes = page_bytes(problem.window_page_entries);
  problem.selected_page_bytes = page_bytes(problem.selected_page_entries);
  return problem;
}

std::vector<SparseMlaDecodeProblem> problems() {
  return {planar({.rows = 3, .heads = 64, .selected_slots = 64}),
          {.rows = 2, .heads = 16, .selected_slots = 512},
          // The page of 2 entries that contiguous keys come in.
          planar({.rows = 5, .heads = 8, .selected_slots = 72, .selected_page_entries = 2}),
          {.rows = 130,
           .heads = 8,
           .window_slots = 128,
           .selected_slots = 0,
           .has_sink = false,
           .inverse_rope = false}};
}

template <class Family>
void check_family(std::size_t most_variants) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  if (!Family::runs_on(cu::limits_of(context.device())) &&
      test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  double worst = 0;
  for (const auto& problem : problems())
    check_problem<Family>(context, stream, problem, most_variants, worst);
  fmt::print("{}: worst relative error {:.2e}\n", Family::kStem, worst);
}

/// Few launches, every buffer as small as it may be: for memcheck and racecheck.
template <class Family>
void check_bounds(std::size_t most_variants) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  if (!Family::runs_on(cu::limits_of(context.device())) &&
      test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  const SparseMlaDecodeProblem problem{.rows = 2, .heads = 16, .selected_slots = 64};
  const auto variants = compile<Family>(context, problem, most_variants);
  const auto cases = test::sparse_mla_cases({.rows = problem.rows,
                                             .heads = problem.heads,
                                             .window_slots = problem.window_slots,
                                             .selected_slots = problem.selected_slots,
                                             .window_layout = window_layout(problem),
                                             .selected_layout = selected_layout(problem)});
  int checked = 0;
  for (const auto& one : cases) {
    if (one.name != "lists that fill no tile, garbage behind them" &&
        one.name != "unused slots among used ones" && one.name != "a row without keys" &&
        one.name != "the first and the last entry of the pools")
      continue;
    ++checked;
    const auto reference =
        test::sparse_mla_reference(one.inputs, problem.has_sink, problem.inverse_rope);
    for (const auto& variant : variants) {
      CAPTURE(one.name,
              jit::describe({std::string(Family::kStem), jit::param_values(variant.params)}));
      const Device device(context, stream, one.inputs,
                          static_cast<std::size_t>(std::max<long long>(
                              Family::exchange_value_bytes(problem, variant.params), 16)),
                          static_cast<std::size_t>(std::max<long long>(
                              Family::exchange_sum_bytes(problem, variant.params), 16)));
      const auto got = device.run(variant.kernel, Family::launch_shape(problem, variant.params));
      const auto difference = test::compare(got, reference);
      CAPTURE(difference.relative);
      REQUIRE_FALSE(difference.nan_differs);
      REQUIRE(difference.relative <= one.tolerance);
      REQUIRE(device.exchange_is_clean());
    }
  }
  REQUIRE(checked == 4);
}

/// Entries in the last page of a pool beyond 2^31 bytes.
template <class Family>
void check_large_pool() {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  if (!Family::runs_on(cu::limits_of(context.device())) &&
      test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  constexpr std::size_t kPages = 60'000;
  const SparseMlaDecodeProblem problem{.rows = 2, .heads = 64, .selected_slots = 64};
  const std::size_t bytes = kPages * static_cast<std::size_t>(problem.window_page_bytes);
  REQUIRE(bytes > (std::size_t{1} << 31));
  if (context.free_bytes() < bytes + (std::size_t{1} << 30) &&
      test::skip("not enough free device memory for a pool of 2.3 GB"))
    return;
  const test::SparseMlaShape shape{.rows = problem.rows,
                                   .heads = problem.heads,
                                   .window_slots = problem.window_slots,
                                   .selected_slots = problem.selected_slots,
                                   .window_layout = window_layout(problem),
                                   .selected_layout = selected_layout(problem),
                                   .window_entries = 64};
  auto inputs = test::random_inputs(shape);
  const auto reference = test::sparse_mla_reference(inputs, true, true);
  // The same entries, one page, at the end of the large pool.
  const auto page = inputs.window_pool;
  for (int& index : inputs.window_indices)
    index += static_cast<int>(kPages - 1) * 64;
  Device device(context, stream, inputs);
  device.window_pool = cu::DeviceBuffer::allocate(context, bytes);
  device.window_pool.copy_from_host(stream, std::as_bytes(std::span(page)), bytes - page.size());
  stream.synchronize();
  for (const auto& variant : compile<Family>(context, problem, 2)) {
    const auto got = device.run(variant.kernel, Family::launch_shape(problem, variant.params));
    const auto difference = test::compare(got, reference);
    CAPTURE(difference.relative);
    REQUIRE_FALSE(difference.nan_differs);
    REQUIRE(difference.relative <= 3e-3);
  }
}

}  // namespace

TEST_CASE("sparse MLA decode agrees with the reference in every case, to the bit every time",
          "[gpu][kernel]") {
  check_family<kernels::SparseMlaDecode>(4);
}
TEST_CASE("sparse MLA decode on wgmma agrees with the reference in every case", "[gpu][kernel]") {
  check_family<kernels::SparseMlaDecodeSm90>(3);
}
TEST_CASE("the per-head sparse MLA decode agrees with the reference in every case",
          "[gpu][kernel]") {
  check_family<kernels::SparseMlaDecodeSimt>(1);
}
TEST_CASE("sparse MLA decode stays within its buffers", "[gpu][kernel][sanitize]") {
  check_bounds<kernels::SparseMlaDecode>(4);
}
TEST_CASE("sparse MLA decode on wgmma stays within its buffers", "[gpu][kernel][sanitize]") {
  check_bounds<kernels::SparseMlaDecodeSm90>(3);
}
TEST_CASE("sparse MLA decode reads the last page of a pool beyond 2 GiB", "[gpu][kernel]") {
  check_large_pool<kernels::SparseMlaDecode>();
}
TEST_CASE("sparse MLA decode on wgmma reads the last page of a pool beyond 2 GiB",
          "[gpu][kernel]") {
  check_large_pool<kernels::SparseMlaDecodeSm90>();
}
