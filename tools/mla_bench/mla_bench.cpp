#include "tools/mla_bench/mla_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <span>

#include "kernel_templates/memory_read.space.hpp"
#include "kernel_templates/sparse_mla_decode_simt.space.hpp"
#include "tools/mla_bench/pool.hpp"
#include "tools/mla_bench/trace.hpp"

namespace ingot::bench {
namespace {

constexpr int kEntries = 64 * 8192;  // of each pool: 300 MB, five times the L2
constexpr int kRows = 1024, kCheckRows = 128, kMostHeads = 64, kDims = 512;
constexpr int kWindow = 128, kMostSelected = 1024;
constexpr int kExactHeads = 8;    // of the first row
constexpr int kFewestNodes = 32;  // of a graph: what a replay costs beside its nodes is shared
constexpr std::uint64_t kWindowSeed = 1, kSelectedSeed = 2;
constexpr std::size_t kExchangeValueBytes = std::size_t{256} << 20;
constexpr std::size_t kExchangeSumBytes = std::size_t{16} << 20;
constexpr double kTolerance = 3e-3;  // relative Frobenius norm

template <class T>
cu::DeviceBuffer upload(const cu::Context& context, const cu::Stream& stream,
                        const std::vector<T>& values) {
  auto buffer = cu::DeviceBuffer::allocate(context, values.size() * sizeof(T));
  buffer.copy_from_host(stream, std::as_bytes(std::span(values)));
  stream.synchronize();
  return buffer;
}

float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

struct Distance {
  double relative = 0;
  bool nan = false;
};
template <class Reference>
Distance distance(std::span<const std::uint16_t> got, const Reference& value_of) {
  double error = 0, norm = 0;
  bool nan = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = bf16_value(got[i]), expected = value_of(i);
    nan |= std::isnan(value) || std::isnan(expected);
    error += (value - expected) * (value - expected);
    norm += expected * expected;
  }
  return {error == 0 ? 0 : norm == 0 ? 1e9 : std::sqrt(error / norm), nan};
}

}  // namespace

MlaBench::MlaBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins)
    : cubins_(cubins),
      context_(cu::Context::retain(std::move(driver), 0)),
      stream_(cu::Stream::create(context_)) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  q_host_.resize(std::size_t{kRows + kCheckRows} * kMostHeads * kDims);
  std::vector<std::uint16_t> drawn(1 << 16);
  for (auto& bits : drawn)
    bits =
        static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(normal(random)) + 0x8000U) >> 16);
  std::uint64_t state = 1;
  for (auto& bits : q_host_) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    bits = drawn[state >> 48];
  }
  for (int head = 0; head < kMostHeads; ++head)
    sink_host_.push_back(-4.0F + 0.125F * static_cast<float>(head));
  for (int pair = 0; pair < 32; ++pair)
    frequency_.push_back(static_cast<float>(std::pow(10000.0, -2.0 * pair / 64)));
  for (int row = 0; row < kRows + kCheckRows; ++row)
    position_.push_back(static_cast<int>(random() % 1'000'000));
  q_ = upload(context_, stream_, q_host_);
  sink_ = upload(context_, stream_, sink_host_);
  frequencies_ = upload(context_, stream_, frequency_);
  positions_ = upload(context_, stream_, position_);
  out_ = cu::DeviceBuffer::allocate(context_, q_host_.size() * 2);
  exchange_values_ = cu::DeviceBuffer::allocate(context_, kExchangeValueBytes);
  exchange_sums_ = cu::DeviceBuffer::allocate(context_, kExchangeSumBytes);
  exchange_values_.fill_bytes(stream_, 0xff);
  exchange_sums_.fill_bytes(stream_, 0xff);
  stream_.synchronize();
}

MlaBench::~MlaBench() = default;

MlaBench::Pools& MlaBench::pools(int layout) {
  const auto found = pools_.find(layout);
  if (found != pools_.end()) return found->second;
  const MlaLayout wanted = mla_layouts()[static_cast<std::size_t>(layout)];
  const auto problem = problem_of({64, 1, 512}, wanted);
  const test::KvLayout where{problem.window_page_entries, problem.window_page_bytes,
                             problem.entry_stride, problem.scales_beside};
  return pools_
      .emplace(layout, Pools{upload(context_, stream_, make_pool(where, kEntries, kWindowSeed)),
                             upload(context_, stream_, make_pool(where, kEntries, kSelectedSeed))})
      .first->second;
}

void MlaBench::enter(const MlaCell& cell) {
  cell_ = cell;
  expected_.clear();
  if (lists_of_ != cell.selected) {
    lists_of_ = cell.selected;
    std::mt19937 random(static_cast<unsigned>(123 + cell.selected));
    const auto below = [&](int limit) {
      return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    window_list_.clear();
    selected_list_.clear();
    window_count_.assign(kRows + kCheckRows, kWindow);
    selected_count_.assign(kRows + kCheckRows, cell.selected);
    for (int row = 0; row < kRows + kCheckRows; ++row) {
      const int window = below(kEntries - kWindow), selected = below(kEntries - 16384);
      for (int i = 0; i < kWindow; ++i)
        window_list_.push_back(window + i);
      for (int i = 0; i < cell.selected; ++i)
        selected_list_.push_back(selected + (cell.selected == 512 ? below(16384) : i));
      if (row < kRows) continue;
      int* in_window = &window_list_[window_list_.size() - kWindow];
      int* in_selected = selected_list_.data() + selected_list_.size() - cell.selected;
      int& windows = window_count_[static_cast<std::size_t>(row)];
      int& selecteds = selected_count_[static_cast<std::size_t>(row)];
      switch (row % 8) {
        case 0:
          windows = 100, selecteds = cell.selected * 3 / 7;
          break;
        case 1:
          for (int i = 0; i < kWindow; ++i)
            if (below(10) == 0) in_window[i] = -1;
          for (int i = 0; i < cell.selected; ++i)
            if (below(10) == 0) in_selected[i] = -1;
          break;
        case 2:
          windows = selecteds = 0;
          break;
        case 3:
          std::fill_n(in_window, kWindow, -1);
          std::fill_n(in_selected, cell.selected, -1);
          break;
        case 4:
          windows = 1, selecteds = 0;
          break;
        case 5:
          in_window[kWindow - 1] = kEntries - 1;
          if (cell.selected > 0) in_selected[cell.selected - 1] = kEntries - 1;
          break;
        case 6:
          windows = kWindow, selecteds = std::min(cell.selected, 1);
          break;
        default:
          windows = 77, selecteds = 0;
          break;
      }
      for (int i = windows; i < kWindow; ++i)  // past the counts anything may stand
        in_window[i] = 0x7fffff00 + i;
      for (int i = selecteds; i < cell.selected; ++i)
        in_selected[i] = 0x7f000000 + i;
    }
    if (selected_list_.empty()) selected_list_.push_back(0);
    window_lists_ = upload(context_, stream_, window_list_);
    selected_lists_ = upload(context_, stream_, selected_list_);
    window_counts_ = upload(context_, stream_, window_count_);
    selected_counts_ = upload(context_, stream_, selected_count_);
  }
  const MlaCandidate simt = simt_candidate(cell);
  const jit::Kernel kernel = load(simt.variant);
  (void)pools(simt.layout);
  std::vector<int> firsts{0};
  for (int row = kRows; row < kRows + 8; row += cell.rows)
    firsts.push_back(row);
  for (const int first : firsts) {
    launch(kernel, simt, false, first);
    expected_[first] = output(first);
  }
  exact_ = exact_heads();
  const Distance simt_error = distance(std::span(expected_[0]).first(exact_.size()),
                                       [&](std::size_t i) { return exact_[i]; });
  if (simt_error.nan || simt_error.relative > kTolerance) {
    throw EngineError(ErrorCode::corrupt,
                      fmt::format("{}: the per-head kernel is wrong: relative error {:.2e}",
                                  cell.name(), simt_error.relative));
  }
}

std::vector<double> MlaBench::exact_heads() const {
  constexpr int rows = 1;
  test::SparseMlaInputs in;
  in.rows = rows;
  in.heads = std::min(cell_.heads, kExactHeads);
  in.window_slots = kWindow;
  in.selected_slots = cell_.selected;
  in.window_layout = in.selected_layout = test::KvLayout{};
  const auto take = [&](int slots, const std::vector<int>& list, std::uint64_t seed,
                        std::vector<std::uint8_t>& pool, std::vector<int>& indices) {
    const int count = rows * slots;
    pool.resize(static_cast<std::size_t>((count + 63) / 64 * in.window_layout.page_bytes));
    for (int i = 0; i < count; ++i) {
      test::store_entry(pool, in.window_layout, i,
                        make_entry(seed, list[static_cast<std::size_t>(i)]));
      indices.push_back(i);
    }
  };
  take(kWindow, window_list_, kWindowSeed, in.window_pool, in.window_indices);
  take(cell_.selected, selected_list_, kSelectedSeed, in.selected_pool, in.selected_indices);
  in.window_counts.assign(static_cast<std::size_t>(rows), kWindow);
  in.selected_counts.assign(static_cast<std::size_t>(rows), cell_.selected);
  in.positions.assign(position_.begin(), position_.begin() + rows);
  in.sink = sink_host_;
  in.frequencies = frequency_;
  in.q.assign(q_host_.begin(), q_host_.begin() + in.heads * kDims);
  return test::sparse_mla_reference(in, true, true);
}

jit::Kernel MlaBench::load(const jit::Variant& variant) const {
  const auto kernel =
      jit::Kernel::load(context_, value_or_throw(cubins_.load(variant)), variant.family);
  kernel.prefer_shared_memory(context_);
  return kernel;
}

kernels::SparseMlaDecodeArgs MlaBench::args_of(int layout, int first) const {
  const Pools& pool = pools_.at(layout);
  const std::ptrdiff_t elements = std::ptrdiff_t{first} * cell_.heads * kDims;
  return {.q = q_.as<kernels::bf16>() + elements,
          .window_pool = pool.window.as<kernels::u8>(),
          .selected_pool = pool.selected.as<kernels::u8>(),
          .window_indices = window_lists_.as<int>() + std::ptrdiff_t{first} * kWindow,
          .selected_indices = selected_lists_.as<int>() + std::ptrdiff_t{first} * cell_.selected,
          .window_counts = window_counts_.as<int>() + first,
          .selected_counts = selected_counts_.as<int>() + first,
          .sink = sink_.as<float>(),
          .positions = positions_.as<int>() + first,
          .frequencies = frequencies_.as<float>(),
          .out = out_.as<kernels::bf16>() + elements,
          .exchange_values = exchange_values_.as<float>(),
          .exchange_sums = exchange_sums_.as<float>(),
          .rows = cell_.rows,
          .heads = cell_.heads,
          .window_slots = kWindow,
          .selected_slots = cell_.selected};
}

void MlaBench::launch(const jit::Kernel& kernel, const MlaCandidate& candidate, bool early,
                      int first) const {
  cu::LaunchShape shape = candidate.shape;
  shape.programmatic = early;
  kernel.launch(stream_, shape, args_of(candidate.layout, first));
}

std::vector<std::uint16_t> MlaBench::output(int first) const {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(cell_.rows * cell_.heads * kDims));
  out_.copy_to_host(
      stream_, std::as_writable_bytes(std::span(values)),
      static_cast<std::size_t>(first) * static_cast<std::size_t>(cell_.heads) * kDims * 2);
  stream_.synchronize();
  return values;
}

std::string MlaBench::check(const MlaCandidate& candidate, const jit::Kernel& kernel,
                            bool thoroughly, MlaOutcome& outcome) {
  if (candidate.exchange_value_bytes > static_cast<long long>(kExchangeValueBytes) ||
      candidate.exchange_sum_bytes > static_cast<long long>(kExchangeSumBytes)) {
    return fmt::format("needs {} bytes to exchange results", candidate.exchange_value_bytes);
  }
  for (const auto& [first, expected] : expected_) {
    std::vector<std::uint16_t> earlier;
    for (int turn = 0; turn < (thoroughly ? 2 : 1); ++turn) {
      out_.fill_bytes(stream_, 0xff);
      launch(kernel, candidate, false, first);
      auto got = output(first);
      if (turn == 1 && got != earlier) return fmt::format("two launches differ, row {}", first);
      if (turn == 0) {
        const Distance d =
            distance(got, [&, e = &expected](std::size_t i) { return bf16_value((*e)[i]); });
        // Both sides are rounded to bf16.
        if (d.nan || d.relative > 1.4 * kTolerance) {
          return fmt::format("wrong from row {}: differs by {:.2e} from the per-head kernel{}",
                             first, d.relative, d.nan ? ", NaN" : "");
        }
        earlier = std::move(got);
      }
    }
    if (first == 0) {
      bits_ = earlier;
      const Distance d = distance(std::span(earlier).first(exact_.size()),
                                  [&](std::size_t i) { return exact_[i]; });
      outcome.relative_error = d.relative;
      if (d.nan || d.relative > kTolerance)
        return fmt::format("wrong: relative error {:.2e}", d.relative);
    }
  }
  if (thoroughly && candidate.exchange_value_bytes > 0) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(candidate.exchange_value_bytes) / 4);
    exchange_values_.copy_to_host(stream_, std::as_writable_bytes(std::span(words)));
    stream_.synchronize();
    if (std::any_of(words.begin(), words.end(), [](auto w) { return w != 0xffffffffU; }))
      return "the exchange buffer is not clean after a launch";
  }
  return {};
}

MlaOutcome MlaBench::run(const MlaCandidate& candidate, bool thoroughly) {
  MlaOutcome outcome;
  const auto cubin = cubins_.load(candidate.variant);
  if (!cubin) {
    outcome.error = cubin.error().message;
    return outcome;
  }
  (void)pools(candidate.layout);
  // Whatever the candidate before left there is not this one's.
  exchange_values_.fill_bytes(stream_, 0xff);
  exchange_sums_.fill_bytes(stream_, 0xff);
  const jit::Kernel kernel = load(candidate.variant);
  outcome.error = check(candidate, kernel, thoroughly, outcome);
  if (!outcome.error.empty()) return outcome;
  // 512 rows or more a graph: 200 MB of keys, beyond three times the L2. Row sets repeat after
  // 400 MB.
  const int sets = kRows / cell_.rows;
  const int nodes = std::max(512 / cell_.rows, kFewestNodes);
  const MeasurePolicy policy =
      thoroughly ? MeasurePolicy{.batch_replays = 8, .max_replays = 16}
                 : MeasurePolicy{.warmup_replays = 1, .batch_replays = 3, .max_replays = 3};
  const auto timed = [&](bool early) {
    const cu::Graph graph = record_nodes(stream_, nodes, [&](int node) {
      launch(kernel, candidate, early, node % sets * cell_.rows);
    });
    return measure(context_, stream_, graph, policy);
  };
  out_.fill_bytes(stream_, 0xff);
  outcome.timing = timed(false);
  if (thoroughly) outcome.early = timed(true);
  if (output(0) != bits_) outcome.error = "results in the graph differ";
  return outcome;
}

std::vector<std::uint32_t> MlaBench::trace(const MlaCandidate& candidate,
                                           std::span<const std::byte> cubin) {
  (void)pools(candidate.layout);
  exchange_values_.fill_bytes(stream_, 0xff);
  exchange_sums_.fill_bytes(stream_, 0xff);
  const jit::Kernel kernel = jit::Kernel::load(context_, cubin, candidate.variant.family);
  kernel.prefer_shared_memory(context_);
  MlaCandidate traced = candidate;
  traced.shape.smem_bytes += kTraceBytes;
  const int sets = std::min(kRows / cell_.rows, 4);  // cold: none is launched twice
  for (int set = 0; set < sets; ++set)
    launch(kernel, traced, false, set * cell_.rows);
  const auto& grid = candidate.shape.grid;
  std::vector<std::uint32_t> words(std::size_t{kTraceWords} * grid.x * grid.y * grid.z);
  exchange_values_.copy_to_host(stream_, std::as_writable_bytes(std::span(words)), kTraceAt);
  stream_.synchronize();
  return words;
}

double MlaBench::simt_us() {
  const MlaCandidate simt = simt_candidate(cell_);
  const jit::Kernel kernel = load(simt.variant);
  const int nodes = std::clamp(64 / cell_.rows, 1, 16);
  const cu::Graph graph = record_nodes(
      stream_, nodes, [&](int node) { launch(kernel, simt, false, node * cell_.rows); });
  return measure(context_, stream_, graph,
                 {.warmup_replays = 1, .batch_replays = 2, .max_replays = 2})
      .median_us;
}

std::vector<double> MlaBench::empty_node_us() {
  const kernels::MemoryRead::Params params{};
  const jit::Kernel kernel = jit::Kernel::load(
      context_,
      value_or_throw(
          cubins_.load({std::string(kernels::MemoryRead::kStem), jit::param_values(params)})),
      std::string(kernels::MemoryRead::kStem));
  const kernels::MemoryReadArgs nothing{
      .from = q_.as<kernels::u8>(), .bytes = 0, .sink = out_.as<kernels::u32>()};
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

std::vector<ColdRead> MlaBench::cold_reads() {
  const cu::DeviceLimits limits = cu::limits_of(context_.device());
  const cu::DeviceBuffer& arena = pools(0).window;
  constexpr long long kChunk = kernels::MEMORY_READ_CHUNK;
  const long long chunks_of_arena = static_cast<long long>(arena.bytes()) / kChunk;
  std::vector<ColdRead> curve;
  for (const long long chunks : {4, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288}) {
    const long long bytes = chunks * kChunk, places = chunks_of_arena / chunks;
    const int nodes = static_cast<int>(std::clamp(places, 4LL, 4096LL));
    ColdRead best{.bytes = static_cast<double>(bytes), .us = 0};
    for (const auto& params : kernels::MemoryRead::space({.bytes = bytes}, limits).candidates()) {
      const jit::Kernel kernel = jit::Kernel::load(
          context_,
          value_or_throw(
              cubins_.load({std::string(kernels::MemoryRead::kStem), jit::param_values(params)})),
          std::string(kernels::MemoryRead::kStem));
      auto shape = kernels::MemoryRead::launch_shape({.bytes = bytes}, params, limits);
      shape.programmatic = false;
      const cu::Graph graph = record_nodes(stream_, nodes, [&](int node) {
        const long long at = node % places * std::max(chunks, chunks_of_arena / nodes) %
                             (chunks_of_arena - chunks + 1);
        const kernels::MemoryReadArgs args{.from = arena.as<kernels::u8>() + at * kChunk,
                                           .bytes = bytes,
                                           .sink = out_.as<kernels::u32>()};
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
