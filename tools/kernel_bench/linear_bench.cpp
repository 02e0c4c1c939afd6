#include "tools/kernel_bench/linear_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/memory_read.space.hpp"
#include "runtime/cuda/device_limits.hpp"

namespace ingot::bench {
namespace {

// Weights rotate over more than 400 MB, as far as 96 copies go: beyond three times any L2.
constexpr std::size_t kColdBytes = 400'000'000;
constexpr std::size_t kWeightBytes = 420'000'000;
constexpr int kMostCopies = 96;
constexpr int kFewestNodes = 48;
constexpr int kSets = 8;  // of inputs and outputs
constexpr std::size_t kOutputBytes = std::size_t{kSets} * 256 * 32768 * 2;
constexpr std::size_t kInputBytes = std::size_t{kSets} * 256 * 8192 * 4;
constexpr std::size_t kWorkspaceBytes = 64U << 20;

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

/// Offsets of one set in inputs_.
struct LinearBench::Input {
  std::size_t x = 0;
  std::size_t codes = 0;
  std::size_t scales = 0;
};

LinearBench::LinearBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins)
    : cubins_(cubins),
      context_(cu::Context::retain(std::move(driver), 0)),
      stream_(cu::Stream::create(context_)),
      weights_(cu::DeviceBuffer::allocate(context_, kWeightBytes)),
      outputs_(cu::DeviceBuffer::allocate(context_, kOutputBytes)),
      workspace_(cu::DeviceBuffer::allocate(context_, kWorkspaceBytes)),
      inputs_(cu::DeviceBuffer::allocate(context_, kInputBytes)) {}

LinearBench::~LinearBench() = default;

void LinearBench::enter(const Cell& cell) {
  cell_ = cell;
  const auto& problem = cell.problem;
  const int rows = problem.strips() * kernels::FP8_TILE;
  const LinearWeights weights = random_weights(rows, problem.cols, 7);
  const auto tiles = weights.tiles();
  copy_bytes_ = aligned(tiles.size()) + aligned(weights.scales.size());
  copies_ = static_cast<int>(
      std::min<std::size_t>((kColdBytes + copy_bytes_ - 1) / copy_bytes_, kMostCopies));
  weights_.copy_from_host(stream_, tiles);
  weights_.copy_from_host(stream_, bytes_of(weights.scales), aligned(tiles.size()));
  for (int copy = 1; copy < copies_; ++copy) {
    context_.driver().check(context_.driver().cuMemcpyDtoDAsync_v2(
                                weights_.address() + static_cast<std::size_t>(copy) * copy_bytes_,
                                weights_.address(), copy_bytes_, stream_.raw()),
                            "cuMemcpyDtoDAsync");
  }
  input_sets_.clear();
  std::size_t offset = 0;
  const auto place = [&](std::span<const std::byte> bytes) {
    const std::size_t at = offset;
    inputs_.copy_from_host(stream_, bytes, at);
    offset += aligned(bytes.size());
    stream_.synchronize();
    return at;
  };
  for (int set = 0; set < kSets; ++set) {
    LinearInput input =
        random_input(problem.tokens, problem.cols, 100 + static_cast<unsigned>(set));
    input_sets_.push_back(
        {place(bytes_of(input.x)), place(input.tiles()), place(bytes_of(input.tile_scales()))});
    if (set == 0) first_input_ = std::move(input);
  }
  expected_ = reference_linear(weights, first_input_);
  stream_.synchronize();
}

jit::Kernel LinearBench::load(const jit::Variant& variant) const {
  return jit::Kernel::load(context_, value_or_throw(cubins_.load(variant)), variant.family);
}

kernels::Fp8LinearArgs LinearBench::args_of(int node) const {
  const auto& problem = cell_.problem;
  const int rows = problem.strips() * kernels::FP8_TILE;
  const cu::CUdeviceptr weights =
      weights_.address() + static_cast<std::size_t>(node % copies_) * copy_bytes_;
  const std::size_t tile_bytes =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(problem.cols);
  const cu::CUdeviceptr scales = weights + aligned(tile_bytes);
  const std::size_t output_bytes =
      static_cast<std::size_t>(problem.tokens) * static_cast<std::size_t>(rows) * 2;
  const cu::CUdeviceptr out =
      outputs_.address() + static_cast<std::size_t>(node % kSets) * aligned(output_bytes);
  const Input& input = input_sets_[static_cast<std::size_t>(node % kSets)];
  kernels::Fp8LinearArgs args{};
  std::size_t row = 0;
  std::size_t segments = 0;
  for (const int segment_rows : problem.rows) {
    if (segment_rows == 0) continue;
    auto& segment = args.segments[segments++];
    const std::size_t cols = static_cast<std::size_t>(problem.cols);
    segment.weight = reinterpret_cast<const kernels::fp8_e4m3*>(weights + row * cols);
    segment.scale = reinterpret_cast<const kernels::ue8m0*>(scales + row * cols / (128 * 128));
    segment.out = reinterpret_cast<kernels::bf16*>(out + row * 2);
    segment.rows = segment_rows;
    segment.out_stride = rows;
    row += static_cast<std::size_t>(segment_rows);
  }
  args.x = reinterpret_cast<const kernels::bf16*>(inputs_.address() + input.x);
  args.xq = reinterpret_cast<const kernels::fp8_e4m3*>(inputs_.address() + input.codes);
  args.x_scale = reinterpret_cast<const float*>(inputs_.address() + input.scales);
  args.workspace = workspace_.as<void>();
  args.tokens = problem.tokens;
  args.x_rows = (problem.tokens + 3) / 4 * 4;
  return args;
}

std::vector<std::uint16_t> LinearBench::output(int set) const {
  std::vector<std::uint16_t> values(expected_.size());
  outputs_.copy_to_host(stream_, std::as_writable_bytes(std::span(values)),
                        static_cast<std::size_t>(set) * aligned(values.size() * 2));
  stream_.synchronize();
  return values;
}

std::string LinearBench::check(const Candidate& candidate, const jit::Kernel& kernel,
                               Outcome& outcome) {
  if (candidate.workspace_bytes > static_cast<long long>(kWorkspaceBytes)) {
    return fmt::format("needs {} bytes of workspace", candidate.workspace_bytes);
  }
  const int columns = cell_.problem.strips() * kernels::FP8_TILE;
  workspace_.fill_bytes(stream_, 0xff);
  std::vector<std::uint16_t> first;
  for (int turn = 0; turn < 2; ++turn) {
    outputs_.fill_bytes(stream_, 0xff);
    kernel.launch(stream_, candidate.shape, args_of(0));
    const auto got = output(0);
    if (turn == 0) {
      const Comparison comparison = compare(got, expected_, columns);
      outcome.relative_error = comparison.relative_error;
      if (!comparison.good()) {
        return fmt::format(
            "wrong: worst element {:.2f} of what is allowed, {} unwritten, {} NaN "
            "out of place, relative error {:.2e}",
            comparison.worst, comparison.unwritten, comparison.wrong_kind,
            comparison.relative_error);
      }
      first = got;
    } else if (got != first) {
      return "two launches differ";
    }
  }
  if (candidate.workspace_bytes > 0) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(candidate.workspace_bytes) / 4);
    workspace_.copy_to_host(stream_, std::as_writable_bytes(std::span(words)));
    stream_.synchronize();
    if (std::any_of(words.begin(), words.end(), [](auto w) { return w != 0xffffffffU; })) {
      return "the workspace is not clean after a launch";
    }
  }
  return {};
}

Outcome LinearBench::run(const Candidate& candidate, bool thoroughly) {
  Outcome outcome;
  const jit::Kernel kernel = load(candidate.variant);
  outcome.error = check(candidate, kernel, outcome);
  if (!outcome.error.empty()) return outcome;
  const auto expected_bits = output(0);
  const int rounds = (kFewestNodes + copies_ - 1) / copies_;
  const MeasurePolicy policy =
      thoroughly ? MeasurePolicy{.batch_replays = 15, .max_replays = 45} : MeasurePolicy{};
  const auto timed = [&](bool early) {
    cu::LaunchShape shape = candidate.shape;
    shape.programmatic = early;
    const cu::Graph graph = record_nodes(
        stream_, rounds * copies_, [&](int node) { kernel.launch(stream_, shape, args_of(node)); });
    return measure(context_, stream_, graph, policy);
  };
  outcome.timing = timed(false);
  if (thoroughly) outcome.early = timed(true);
  // Output set 0 is written by the nodes that read input set 0, early or not.
  if (output(0) != expected_bits) outcome.error = "results in the graph differ";
  return outcome;
}

double LinearBench::act_quant_us() {
  const auto& problem = cell_.problem;
  const kernels::ActQuant::Problem wanted{.tokens = problem.tokens, .cols = problem.cols};
  const kernels::ActQuant::Params params{};
  const jit::Kernel kernel =
      load({std::string(kernels::ActQuant::kStem), jit::param_values(params)});
  cu::LaunchShape shape = kernels::ActQuant::launch_shape(wanted, params);
  shape.programmatic = false;
  const int rows = first_input_.rows;
  const std::size_t code_bytes =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(problem.cols);
  const std::size_t set_bytes = aligned(code_bytes) + aligned(code_bytes / 128 * 4);
  const auto queue = [&](int node) {
    const auto set = static_cast<std::size_t>(node % kSets);
    const cu::CUdeviceptr to = outputs_.address() + set * set_bytes;
    const kernels::ActQuantArgs args{
        .x = reinterpret_cast<const kernels::bf16*>(inputs_.address() + input_sets_[set].x),
        .codes = reinterpret_cast<kernels::fp8_e4m3*>(to),
        .scale = reinterpret_cast<float*>(to + aligned(code_bytes)),
        .tokens = problem.tokens,
        .cols = problem.cols,
        .x_stride = problem.cols,
        .rows = rows};
    kernel.launch(stream_, shape, args);
  };
  const Timing timing =
      measure(context_, stream_, record_nodes(stream_, 64, queue), MeasurePolicy{});
  std::vector<std::byte> got(set_bytes);
  outputs_.copy_to_host(stream_, got);
  stream_.synchronize();
  const auto tiles = first_input_.tiles();
  const auto scales = first_input_.tile_scales();
  for (std::size_t token = 0; token < static_cast<std::size_t>(problem.tokens); ++token) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(problem.k_tiles()); ++k) {
      const std::size_t group = k * static_cast<std::size_t>(rows) + token;
      if (std::memcmp(&got[group * 128], &tiles[group * 128], 128) != 0 ||
          std::memcmp(&got[aligned(code_bytes) + group * 4], &scales[group], 4) != 0) {
        throw EngineError(
            ErrorCode::corrupt,
            fmt::format("act_quant differs from the reference at token {}, group {}", token, k));
      }
    }
  }
  return timing.median_us;
}

std::vector<double> LinearBench::empty_node_us() {
  const kernels::MemoryRead::Params params{};
  const jit::Kernel kernel =
      load({std::string(kernels::MemoryRead::kStem), jit::param_values(params)});
  const kernels::MemoryReadArgs nothing{
      .from = weights_.as<kernels::u8>(), .bytes = 0, .sink = workspace_.as<kernels::u32>()};
  const auto sms = static_cast<unsigned>(context_.device().sm_count);
  std::vector<double> times;
  for (const auto& [blocks, early] : {std::pair{1U, false}, {sms, false}, {sms, true}}) {
    const cu::LaunchShape shape{
        .grid = {blocks}, .block = {static_cast<unsigned>(params.THREADS)}, .programmatic = early};
    const cu::Graph graph =
        record_nodes(stream_, 256, [&](int) { kernel.launch(stream_, shape, nothing); });
    times.push_back(measure(context_, stream_, graph, MeasurePolicy{}).median_us);
  }
  return times;
}

std::vector<ColdRead> LinearBench::cold_reads() {
  const cu::DeviceLimits limits = cu::limits_of(context_.device());
  std::vector<ColdRead> curve;
  constexpr long long kChunk = kernels::MEMORY_READ_CHUNK;
  for (const long long chunks : {4, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288}) {
    const long long bytes = chunks * kChunk;
    const auto places = static_cast<int>(static_cast<long long>(kColdBytes) / bytes);
    const int nodes = std::clamp(places, 8, 4096);
    ColdRead best{.bytes = static_cast<double>(bytes), .us = 0};
    for (const auto& params : kernels::MemoryRead::space({.bytes = bytes}, limits).candidates()) {
      const jit::Kernel kernel =
          load({std::string(kernels::MemoryRead::kStem), jit::param_values(params)});
      auto shape = kernels::MemoryRead::launch_shape({.bytes = bytes}, params, limits);
      shape.programmatic = false;
      // A replay touches the whole arena (or 4096 places of it): never what L2 still holds.
      const long long step =
          std::max(bytes, static_cast<long long>(kColdBytes) / nodes / kChunk * kChunk);
      const cu::Graph graph = record_nodes(stream_, nodes, [&](int node) {
        const long long at =
            node % std::max(places, 1) * step % (static_cast<long long>(kColdBytes) - bytes + 1);
        const kernels::MemoryReadArgs args{
            .from = weights_.as<kernels::u8>() + at / kChunk * kChunk,
            .bytes = bytes,
            .sink = workspace_.as<kernels::u32>()};
        kernel.launch(stream_, shape, args);
      });
      const double us = measure(context_, stream_, graph, MeasurePolicy{}).median_us;
      if (best.us == 0 || us < best.us) best.us = us;
    }
    curve.push_back(best);
  }
  return curve;
}

}  // namespace ingot::bench
