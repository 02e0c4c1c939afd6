#include "tools/moe_bench/prefill_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <span>

#include "kernel_templates/expert_gather.space.hpp"
#include "kernel_templates/expert_join.space.hpp"
#include "kernel_templates/expert_order.space.hpp"
#include "kernel_templates/moe_decode.space.hpp"
#include "src/reference/numerics.hpp"
#include "tools/moe_bench/random_jobs.hpp"

namespace ingot::bench {
namespace {

using kernels::ExpertGather;
using kernels::ExpertJoin;
using kernels::ExpertOrder;
using kernels::MoeDecode;
using kernels::MoePrefillSm90;

constexpr int kHidden = 4096, kExperts = 256, kTopk = 6, kMostInter = 2048, kMostTokens = 8192;
constexpr int kCompared = 256;  // tokens
constexpr float kLimit = 10;
// Relative Frobenius norm. The tensor core's sums have about 14 bits, which turns the rounding of
// one activation in some hundreds.
constexpr double kTolerance = 1e-2;

std::size_t gate_up_bytes(int inter) {
  return std::size_t{kExperts} * static_cast<std::size_t>(inter / 16 * (kHidden / 128)) *
         kernels::MOE_JOB_BYTES;
}

template <class Family>
jit::Variant variant_of(const typename Family::Params& params) {
  return {std::string(Family::kStem), jit::param_values(params)};
}

kernels::MoeDecodeProblem decode_problem(const PrefillCell& cell) {
  return {.batch = kCompared, .inter = cell.inter(), .whole_experts = cell.tensor_parallel == 1};
}

/// Six experts for each token.
std::vector<int> route(PrefillRouting routing, int tokens) {
  std::mt19937 random(12);
  std::vector<int> ids;
  for (int token = 0; token < tokens; ++token) {
    std::set<int> chosen;
    while (chosen.size() < kTopk) {
      auto id = static_cast<int>(random() % kExperts);
      // An eighth of the experts gets half of the pairs.
      if (routing == PrefillRouting::skewed && random() % 2 == 0) id %= kExperts / 8;
      if (routing == PrefillRouting::same) id = static_cast<int>(chosen.size()) * 41 + 7;
      chosen.insert(id);
    }
    std::vector<int> order(chosen.begin(), chosen.end());
    std::shuffle(order.begin(), order.end(), random);
    ids.insert(ids.end(), order.begin(), order.end());
  }
  return ids;
}

double relative_distance(std::span<const float> got, std::span<const float> expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = double{got[i]} - expected[i];
    error += difference * difference;
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / norm);  // NaN when either side has one
}

}  // namespace

std::string PrefillCell::name() const {
  constexpr const char* kRouting[] = {"", " same", " skewed"};
  return fmt::format("TP{} {}{}", tensor_parallel, tokens, kRouting[static_cast<int>(routing)]);
}
double PrefillCell::flops() const {
  return 6.0 * tokens * kTopk * kHidden * inter();
}

std::vector<PrefillCell> prefill_cells() {
  std::vector<PrefillCell> cells;
  for (const int tokens : {4096, 2048, 8192, 1024, 512})
    cells.push_back({1, tokens});
  cells.push_back({1, 4096, PrefillRouting::skewed});
  cells.push_back({1, 4096, PrefillRouting::same});
  for (const int tensor_parallel : {8, 2})
    cells.push_back({tensor_parallel, 4096});
  return cells;
}

std::string PrefillCandidate::brief() const {
  return fmt::format("t{} s{}", gate_up.TOKENS, gate_up.STAGES);
}
std::vector<jit::Variant> PrefillCandidate::variants(bool whole_experts) const {
  ExpertJoin::Params join;
  join.ROUND_EXPERTS = whole_experts;
  return {variant_of<ExpertOrder>({}), variant_of<ExpertGather>({.ROW_SCALES = true}),
          variant_of<MoePrefillSm90>(gate_up), variant_of<MoePrefillSm90>(down),
          variant_of<ExpertJoin>(join)};
}

std::vector<PrefillCandidate> prefill_candidates(const PrefillCell& cell,
                                                 const cu::DeviceLimits& device) {
  const bool whole = cell.tensor_parallel == 1;
  const auto params =
      MoePrefillSm90::space({.tokens = cell.tokens, .inter = cell.inter(), .whole_experts = whole},
                            device)
          .candidates();
  std::vector<PrefillCandidate> candidates;
  for (const auto& gate_up : params) {
    auto down = gate_up;
    down.DOWN = true;
    candidates.push_back({gate_up, down});
  }
  return candidates;
}

jit::Variant prefill_reference(const PrefillCell& cell, const cu::DeviceLimits& device) {
  return variant_of<MoeDecode>(MoeDecode::default_params(decode_problem(cell), device));
}

PrefillBench::PrefillBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins)
    : cubins_(cubins),
      context_(cu::Context::retain(std::move(driver), 0)),
      stream_(cu::Stream::create(context_)),
      limits_(cu::limits_of(context_.device())) {
  const auto upload = [&]<class T>(const std::vector<T>& values) {
    auto buffer = cu::DeviceBuffer::allocate(context_, values.size() * sizeof(T));
    buffer.copy_from_host(stream_, std::as_bytes(std::span(values)));
    stream_.synchronize();
    return buffer;
  };
  const auto jobs = random_jobs();
  arena_ = cu::DeviceBuffer::allocate(context_, gate_up_bytes(kMostInter) / 2 * 3);
  for (std::size_t at = 0; at < arena_.bytes(); at += jobs.size())
    arena_.copy_from_host(stream_,
                          std::span(jobs).first(std::min(jobs.size(), arena_.bytes() - at)), at);
  stream_.synchronize();

  // 512 rows of numbers, over and over: what they are costs no time on the card.
  constexpr std::size_t kRows = 512;
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kHidden);
  for (float& value : x)
    value = reference::bf16_round(normal(random));
  std::vector<std::uint8_t> codes(x.size()), exponents(x.size() / 128);
  reference::act_quant_bytes(x, 128, codes, exponents);
  std::vector<std::uint8_t> all_codes;
  std::vector<float> scales, weights;
  for (std::size_t i = 0; i < kMostTokens / kRows; ++i) {
    all_codes.insert(all_codes.end(), codes.begin(), codes.end());
    for (const auto exponent : exponents)
      scales.push_back(reference::e8m0_value(exponent));
  }
  for (int i = 0; i < kMostTokens * kTopk; ++i)
    weights.push_back(0.1F + static_cast<float>(random() % 1000) / 3000.0F);
  x_ = upload(all_codes);
  x_scale_ = upload(scales);
  weights_ = upload(weights);
  counters_ = cu::DeviceBuffer::allocate(context_, kernels::MOE_COUNTER_WORDS * 4);
  counters_.fill_bytes(stream_, 0);
  out_ = cu::DeviceBuffer::allocate(context_, std::size_t{kMostTokens} * kHidden * 4);
}

std::vector<float> PrefillBench::output(int tokens) const {
  std::vector<float> values(static_cast<std::size_t>(tokens) * kHidden);
  std::vector<std::byte> bytes(out_.bytes());
  out_.copy_to_host(stream_, bytes);
  stream_.synchronize();
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

void PrefillBench::enter(const PrefillCell& cell) {
  cell_ = cell;
  first_.clear();
  const auto ids = route(cell.routing, cell.tokens);
  ids_ = cu::DeviceBuffer::allocate(context_, ids.size() * sizeof(int));
  ids_.copy_from_host(stream_, std::as_bytes(std::span(ids)));
  const kernels::MoePrefillWorkspace at(cell.tokens, cell.inter(), kHidden, kExperts, kTopk,
                                        cell.tensor_parallel == 1);
  workspace_ = cu::DeviceBuffer::allocate(context_, static_cast<std::size_t>(at.bytes));
  // The reference: moe_decode.
  const auto problem = decode_problem(cell);
  const auto params = MoeDecode::default_params(problem, limits_);
  const auto kernel = jit::Kernel::load(
      context_, value_or_throw(cubins_.load(variant_of<MoeDecode>(params))), "moe_decode");
  const auto sums =
      cu::DeviceBuffer::allocate(context_, static_cast<std::size_t>(MoeDecode::sum_bytes(problem)));
  const auto activations = cu::DeviceBuffer::allocate(
      context_, static_cast<std::size_t>(MoeDecode::activation_bytes(problem)));
  kernel.launch(
      stream_, MoeDecode::launch_shape(problem, params, limits_),
      kernels::MoeDecodeArgs{.x = x_.as<kernels::fp8_e4m3>(),
                             .x_scale = x_scale_.as<float>(),
                             .experts = ids_.as<int>(),
                             .weights = weights_.as<float>(),
                             .gate_up = arena_.as<kernels::u8>(),
                             .down = arena_.as<kernels::u8>() + gate_up_bytes(cell.inter()),
                             .sums = sums.as<float>(),
                             .activations = activations.as<kernels::u8>(),
                             .out = out_.as<float>(),
                             .counters = counters_.as<kernels::u32>(),
                             .limit = kLimit,
                             .tokens = std::min(kCompared, cell.tokens)});
  expected_ = output(std::min(kCompared, cell.tokens));
}

/// The launches of a pass.
struct PrefillBench::Pass {
  std::vector<jit::Kernel> kernels;
  kernels::ExpertOrderArgs order;
  kernels::ExpertGatherArgs gather;
  kernels::MoePrefillArgs gate_up, down;
  kernels::ExpertJoinArgs join;
  std::vector<cu::LaunchShape> shapes;

  void launch(const cu::Stream& stream, std::size_t part) const {
    const auto go = [&](const auto& args) { kernels[part].launch(stream, shapes[part], args); };
    if (part == 0) go(order);
    if (part == 1) go(gather);
    if (part == 2) go(gate_up);
    if (part == 3) go(down);
    if (part == 4) go(join);
  }
  void launch(const cu::Stream& stream) const {
    for (std::size_t part = 0; part < kernels.size(); ++part)
      launch(stream, part);
  }
};

std::string PrefillBench::check(const Pass& pass, PrefillOutcome& outcome) {
  std::vector<float> got;
  for (int turn = 0; turn < 2; ++turn) {
    workspace_.fill_bytes(stream_, 0xff);
    out_.fill_bytes(stream_, 0xff);
    pass.launch(stream_);
    auto values = output(cell_.tokens);
    if (turn > 0 && std::memcmp(values.data(), got.data(), got.size() * 4) != 0)
      return "launches differ";
    got = std::move(values);
  }
  outcome.relative_error = relative_distance(std::span(got).first(expected_.size()), expected_);
  if (!(outcome.relative_error <= kTolerance))
    return fmt::format("wrong: relative distance to moe_decode {:.2e}", outcome.relative_error);
  if (first_.empty()) first_ = got;
  if (std::memcmp(first_.data(), got.data(), got.size() * 4) != 0)
    return "other bits than the first candidate";
  return {};
}

PrefillOutcome PrefillBench::run(const PrefillCandidate& candidate, bool parts) {
  const bool whole = cell_.tensor_parallel == 1;
  Pass pass;
  for (const auto& variant : candidate.variants(whole))
    pass.kernels.push_back(
        jit::Kernel::load(context_, value_or_throw(cubins_.load(variant)), variant.family));
  const kernels::MoePrefillWorkspace at(cell_.tokens, cell_.inter(), kHidden, kExperts, kTopk,
                                        whole);
  auto* const base = workspace_.as<kernels::u8>();
  const auto ints = [&](long long offset) { return reinterpret_cast<int*>(base + offset); };
  const auto floats = [&](long long offset) { return reinterpret_cast<float*>(base + offset); };
  pass.order = {.experts = ids_.as<int>(),
                .weights = weights_.as<float>(),
                .first = ints(at.first),
                .count = ints(at.count),
                .row_of = ints(at.row_of),
                .row_weight = floats(at.row_weight),
                .tokens = cell_.tokens};
  pass.gather = {.x = x_.as<kernels::fp8_e4m3>(),
                 .x_scale = x_scale_.as<float>(),
                 .row_of = ints(at.row_of),
                 .rows = base + at.rows,
                 .row_scale = floats(at.row_scale),
                 .scale_stride = kHidden / 128,
                 .row_pitch = at.row_pitch,
                 .tokens = cell_.tokens};
  pass.gate_up = {.weights = arena_.as<kernels::u8>(),
                  .x = base + at.rows,
                  .x_scale = floats(at.row_scale),
                  .first = ints(at.first),
                  .count = ints(at.count),
                  .row_weight = floats(at.row_weight),
                  .h = base + at.h,
                  .h_scale = floats(at.h_scale),
                  .y = base + at.y,
                  .limit = kLimit,
                  .row_pitch = at.row_pitch};
  pass.down = pass.gate_up;
  pass.down.weights += gate_up_bytes(cell_.inter());
  pass.down.x = base + at.h;
  pass.down.x_scale = floats(at.h_scale);
  pass.join = {
      .y = base + at.y, .row_of = ints(at.row_of), .out = out_.as<float>(), .tokens = cell_.tokens};
  pass.shapes = {ExpertOrder::launch_shape({}, {}),
                 ExpertGather::launch_shape({.tokens = cell_.tokens}, {}),
                 MoePrefillSm90::launch_shape({}, candidate.gate_up, limits_),
                 MoePrefillSm90::launch_shape({}, candidate.down, limits_),
                 ExpertJoin::launch_shape({.tokens = cell_.tokens}, {})};

  PrefillOutcome outcome;
  outcome.error = check(pass, outcome);
  if (!outcome.error.empty()) return outcome;
  const MeasurePolicy policy{.warmup_replays = 1, .batch_replays = 5, .max_replays = 10};
  const auto timed = [&](int nodes, const std::function<void()>& queue) {
    const cu::Graph graph = record_nodes(stream_, nodes, [&](int) { queue(); });
    return measure(context_, stream_, graph, policy);
  };
  outcome.all = timed(3, [&] { pass.launch(stream_); });
  if (parts) {
    Timing* const places[] = {&outcome.order, &outcome.gather, &outcome.gate_up, &outcome.down,
                              &outcome.join};
    // Each leaves what the next reads, so that all of them have their real inputs; only where down
    // has written over the inputs does gate/up read other numbers.
    for (std::size_t part = 0; part < 5; ++part)
      *places[part] = timed(3, [&] { pass.launch(stream_, part); });
  }
  return outcome;
}

int compile_prefill(const std::string& arch, const CubinFolder& folder, jit::Compiler& compiler,
                    const std::string& only, const std::string& brief, int jobs) {
  const auto limits = value_or_throw(cu::limits_of_arch(arch));
  std::vector<jit::Variant> variants;
  std::set<std::string> seen;
  const auto add = [&](const jit::Variant& variant) {
    if (seen.insert(jit::describe(variant)).second) variants.push_back(variant);
  };
  for (const PrefillCell& cell : prefill_cells()) {
    if (cell.name().find(only) == std::string::npos) continue;
    add(prefill_reference(cell, limits));
    for (const PrefillCandidate& candidate : prefill_candidates(cell, limits))
      if (candidate.brief().find(brief) != std::string::npos)
        for (const auto& variant : candidate.variants(cell.tensor_parallel == 1))
          add(variant);
  }
  const auto report = folder.fill(compiler, variants, jobs);
  fmt::print("moe_bench: {} variants for {}: {} compiled, {} kept, {} failed or spilling\n",
             variants.size(), arch, report.compiled, report.kept, report.failed.size());
  return report.failed.empty() ? 0 : 1;
}

int run_prefill(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& folder,
                const std::string& only, const std::string& brief, int seconds) {
  using std::chrono::steady_clock;
  const auto start = steady_clock::now();
  PrefillBench bench(std::move(driver), folder);
  const auto limits = cu::limits_of(bench.context().device());
  fmt::print(
      "cell, candidate: all (min) us, TFLOP/s | order gather gate/up down join us | error\n");
  bool good = true;
  for (const PrefillCell& cell : prefill_cells()) {
    if (cell.name().find(only) == std::string::npos) continue;
    bool entered = false;
    for (const PrefillCandidate& candidate : prefill_candidates(cell, limits)) {
      if (candidate.brief().find(brief) == std::string::npos) continue;
      const auto variants = candidate.variants(cell.tensor_parallel == 1);
      if (std::any_of(variants.begin(), variants.end(),
                      [&](const auto& variant) { return !folder.load(variant).has_value(); }))
        continue;  // not compiled
      if (steady_clock::now() - start > std::chrono::seconds(seconds)) return good ? 0 : 1;
      if (!entered) bench.enter(cell);
      entered = true;
      const PrefillOutcome o = bench.run(candidate, true);
      if (!o.error.empty()) {
        good = false;
        fmt::print("{}, {}: {}\n", cell.name(), candidate.brief(), o.error);
        std::fflush(stdout);
        continue;
      }
      fmt::print("{}, {}: {:.0f} ({:.0f}), {:.0f} | {:.1f} {:.1f} {:.0f} {:.0f} {:.1f} | {:.1e}\n",
                 cell.name(), candidate.brief(), 5 * o.all.median_us, 5 * o.all.min_us,
                 cell.flops() / (5 * o.all.median_us) * 1e-6, o.order.median_us, o.gather.median_us,
                 o.gate_up.median_us, o.down.median_us, o.join.median_us, o.relative_error);
      std::fflush(stdout);
    }
  }
  return good ? 0 : 1;
}

}  // namespace ingot::bench
