#include "tools/mla_bench/prefill.hpp"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "kernel_templates/sparse_mla_prefill.space.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tools/mla_bench/pool.hpp"
#include "tools/mla_bench/run.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {
namespace {

constexpr int kMostRows = 4096, kMostHeads = 64, kDims = 512, kWindow = 128, kMostSelected = 1024;
constexpr int kEntries = 16384;  // of each pool; a window ends at entry kWindow - 1 + row
constexpr int kExactHeads = 8, kExactRows = 3;
constexpr std::uint64_t kWindowSeed = 1, kSelectedSeed = 2;
constexpr double kTolerance = 3e-3;
constexpr double kGemmTflops = 787;  // bf16, measured with a GEMM of 4,096 cubed on an H200
// Launches that a graph has at least, and the time that they should take in all.
constexpr int kFewestNodes = 2;
constexpr double kGraphFlops = 0.5e12;

class PrefillBench {
 public:
  PrefillBench(const std::filesystem::path& cubins, const std::string& arch)
      : folder_(cubins, arch),
        context_(
            cu::Context::retain(value_or_throw(cu::DriverApi::open(library_directories())), 0)),
        stream_(cu::Stream::create(context_)) {
    const std::vector<std::uint16_t> drawn = normal_values();
    std::uint64_t state = 1;
    q_host_.resize(std::size_t{kMostRows} * kMostHeads * kDims);
    for (auto& bits : q_host_) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      bits = drawn[state >> 48];
    }
    for (int head = 0; head < kMostHeads; ++head)
      sink_host_.push_back(-4.0F + 0.125F * static_cast<float>(head));
    for (int pair = 0; pair < 32; ++pair)
      frequency_.push_back(static_cast<float>(std::pow(10000.0, -2.0 * pair / 64)));
    for (int row = 0; row < kMostRows; ++row) {
      position_.push_back(65536 + row);
      for (int i = 0; i < kWindow; ++i)
        window_list_.push_back(row + i);
    }
    q_ = upload(q_host_);
    sink_ = upload(sink_host_);
    frequencies_ = upload(frequency_);
    positions_ = upload(position_);
    window_lists_ = upload(window_list_);
    window_counts_ = upload(std::vector<int>(kMostRows, kWindow));
    out_ = cu::DeviceBuffer::allocate(context_, q_host_.size() * 2);
  }

  const std::string& device_name() const { return context_.device().name; }

  void enter(const MlaCell& cell) {
    cell_ = cell;
    std::mt19937 random(static_cast<unsigned>(77 + cell.selected));
    selected_list_.clear();
    for (int row = 0; row < kMostRows; ++row)
      for (int i = 0; i < cell.selected; ++i)
        selected_list_.push_back(cell.selected == 512 ? static_cast<int>(random() % kEntries) : i);
    auto list = selected_list_;
    list.push_back(0);
    selected_lists_ = upload(list);
    selected_counts_ = upload(std::vector<int>(kMostRows, cell.selected));
    exact_.clear();
    for (int i = 0; i < kExactRows; ++i)
      exact_.push_back(exact_heads(exact_row(i)));
  }

  struct Outcome {
    std::string error;
    double relative_error = 0;
    Timing timing;
  };
  Outcome run(const PrefillCandidate& candidate) {
    Outcome outcome;
    const auto cubin = folder_.load(candidate.variant);
    if (!cubin) return {.error = cubin.error().message, .timing = {}};
    const auto kernel = jit::Kernel::load(context_, *cubin, candidate.variant.family);
    kernel.prefer_shared_memory(context_);
    (void)pools(candidate.layout);
    out_.fill_bytes(stream_, 0xff);
    launch(kernel, candidate, 0);
    stream_.synchronize();
    for (int i = 0; i < kExactRows && outcome.error.empty(); ++i) {
      const double error = distance(exact_row(i), exact_[static_cast<std::size_t>(i)]);
      outcome.relative_error = std::max(outcome.relative_error, error);
      if (!(error <= kTolerance))
        outcome.error = fmt::format("wrong at row {}: relative error {:.2e}", exact_row(i), error);
    }
    if (!outcome.error.empty()) return outcome;
    const int sets = kMostRows * kMostHeads / (cell_.rows * cell_.heads);
    const int nodes = std::max(kFewestNodes, static_cast<int>(kGraphFlops / cell_.flops()));
    const cu::Graph graph =
        record_nodes(stream_, nodes, [&](int node) { launch(kernel, candidate, node % sets); });
    outcome.timing = measure(context_, stream_, graph,
                             {.warmup_replays = 2, .batch_replays = 4, .max_replays = 12});
    return outcome;
  }

 private:
  struct Pools {
    cu::DeviceBuffer window, selected;
  };
  static std::vector<std::uint16_t> normal_values() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> drawn(1 << 16);
    for (auto& bits : drawn)
      bits = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(normal(random)) + 0x8000U) >>
                                        16);
    return drawn;
  }
  template <class T>
  cu::DeviceBuffer upload(const std::vector<T>& values) const {
    auto buffer = cu::DeviceBuffer::allocate(context_, values.size() * sizeof(T));
    buffer.copy_from_host(stream_, std::as_bytes(std::span(values)));
    stream_.synchronize();
    return buffer;
  }
  Pools& pools(int layout) {
    const auto found = pools_.find(layout);
    if (found != pools_.end()) return found->second;
    const auto problem = problem_of({64, 1, 512}, mla_layouts()[static_cast<std::size_t>(layout)]);
    const test::KvLayout where{problem.window_page_entries, problem.window_page_bytes,
                               problem.entry_stride, problem.scales_beside};
    return pools_
        .emplace(layout, Pools{upload(make_pool(where, kEntries, kWindowSeed)),
                               upload(make_pool(where, kEntries, kSelectedSeed))})
        .first->second;
  }
  int exact_row(int i) const { return i * (cell_.rows - 1) / (kExactRows - 1); }

  /// @param set  which part of q and of the output
  void launch(const jit::Kernel& kernel, const PrefillCandidate& candidate, int set) const {
    const Pools& pool = pools_.at(candidate.layout);
    const std::ptrdiff_t elements = std::ptrdiff_t{set} * cell_.rows * cell_.heads * kDims;
    cu::LaunchShape shape = candidate.shape;
    shape.programmatic = false;
    kernel.launch(stream_, shape,
                  kernels::SparseMlaDecodeArgs{.q = q_.as<kernels::bf16>() + elements,
                                               .window_pool = pool.window.as<kernels::u8>(),
                                               .selected_pool = pool.selected.as<kernels::u8>(),
                                               .window_indices = window_lists_.as<int>(),
                                               .selected_indices = selected_lists_.as<int>(),
                                               .window_counts = window_counts_.as<int>(),
                                               .selected_counts = selected_counts_.as<int>(),
                                               .sink = sink_.as<float>(),
                                               .positions = positions_.as<int>(),
                                               .frequencies = frequencies_.as<float>(),
                                               .out = out_.as<kernels::bf16>() + elements,
                                               .exchange_values = nullptr,
                                               .exchange_sums = nullptr,
                                               .rows = cell_.rows,
                                               .heads = cell_.heads,
                                               .window_slots = kWindow,
                                               .selected_slots = cell_.selected});
  }

  /// The first heads of one row, in double.
  std::vector<double> exact_heads(int row) const {
    test::SparseMlaInputs in;
    in.rows = 1;
    in.heads = kExactHeads;
    in.window_slots = kWindow;
    in.selected_slots = cell_.selected;
    in.window_layout = in.selected_layout = test::KvLayout{};
    const auto take = [&](int slots, const std::vector<int>& list, std::uint64_t seed,
                          std::vector<std::uint8_t>& pool, std::vector<int>& indices) {
      pool.resize(static_cast<std::size_t>((slots + 63) / 64 * in.window_layout.page_bytes));
      for (int i = 0; i < slots; ++i) {
        const int entry = list[static_cast<std::size_t>(row) * static_cast<std::size_t>(slots) +
                               static_cast<std::size_t>(i)];
        test::store_entry(pool, in.window_layout, i, make_entry(seed, entry));
        indices.push_back(i);
      }
    };
    take(kWindow, window_list_, kWindowSeed, in.window_pool, in.window_indices);
    take(cell_.selected, selected_list_, kSelectedSeed, in.selected_pool, in.selected_indices);
    in.window_counts = {kWindow};
    in.selected_counts = {cell_.selected};
    in.positions = {position_[static_cast<std::size_t>(row)]};
    in.sink = sink_host_;
    in.frequencies = frequency_;
    const auto first = q_host_.begin() + std::ptrdiff_t{row} * cell_.heads * kDims;
    in.q.assign(first, first + kExactHeads * kDims);
    return test::sparse_mla_reference(in, true, true);
  }
  double distance(int row, const std::vector<double>& exact) const {
    std::vector<std::uint16_t> got(exact.size());
    out_.copy_to_host(
        stream_, std::as_writable_bytes(std::span(got)),
        static_cast<std::size_t>(row) * static_cast<std::size_t>(cell_.heads) * kDims * 2);
    stream_.synchronize();
    const auto difference = test::compare(got, exact);
    return difference.nan_differs ? std::numeric_limits<double>::quiet_NaN() : difference.relative;
  }

  CubinFolder folder_;
  cu::Context context_;
  cu::Stream stream_;
  std::map<int, Pools> pools_;
  cu::DeviceBuffer q_, out_, window_lists_, selected_lists_, window_counts_, selected_counts_;
  cu::DeviceBuffer sink_, positions_, frequencies_;
  std::vector<int> window_list_, selected_list_, position_;
  std::vector<std::uint16_t> q_host_;
  std::vector<float> sink_host_, frequency_;
  MlaCell cell_;
  std::vector<std::vector<double>> exact_;  ///< of the rows exact_row(i)
};

}  // namespace

std::vector<MlaCell> prefill_cells() {
  std::vector<MlaCell> cells;
  for (const int selected : {512, 1024, 0})
    for (const int heads : {64, 8})
      for (const int rows : {4096, 1024, 512})
        cells.push_back({heads, rows, selected});
  return cells;
}

std::vector<PrefillCandidate> prefill_candidates(const MlaCell& cell,
                                                 const cu::DeviceLimits& limits) {
  using kernels::SparseMlaDecodeSm90, kernels::SparseMlaPrefill, kernels::SparseMlaPrefillSm90;
  std::vector<PrefillCandidate> candidates;
  const auto layouts = mla_layouts();
  for (int layout = 0; layout < 2; ++layout) {
    const auto where = static_cast<std::size_t>(layout);
    const auto problem = problem_of(cell, layouts[where]);
    auto wgmma = SparseMlaPrefillSm90::space(problem, limits).candidates();
    if (layout > 0) wgmma.resize(1);
    for (const auto& c : wgmma)
      candidates.push_back(
          {fmt::format("W h{} x{} {}", c.TILE_HEADS, c.STAGES, layouts[where].name),
           {std::string(SparseMlaPrefillSm90::kStem), jit::param_values(c)},
           SparseMlaPrefillSm90::launch_shape(problem, c, limits),
           layout});
    if (layout > 0) break;
    auto mma = SparseMlaPrefill::space(problem, limits).extremes();
    if (mma.size() > 3) mma.resize(3);
    for (const auto& c : mma)
      candidates.push_back({fmt::format("M h{} kv{}x{} b{} {}", c.TILE_HEADS, c.TILE_KV, c.STAGES,
                                        c.BLOCKS_PER_SM, layouts[where].name),
                            {std::string(SparseMlaPrefill::kStem), jit::param_values(c)},
                            SparseMlaPrefill::launch_shape(problem, c, limits),
                            layout});
    SparseMlaDecodeSm90::Params decode;
    problem.apply_to(decode);
    decode.TILE_HEADS = cell.heads;
    decode.STAGES = 3;
    candidates.push_back({fmt::format("decode W h{} x3 {}", cell.heads, layouts[where].name),
                          {std::string(SparseMlaDecodeSm90::kStem), jit::param_values(decode)},
                          SparseMlaDecodeSm90::launch_shape(problem, decode),
                          layout});
  }
  return candidates;
}

bool run_prefill_bench(const std::filesystem::path& cubins, const std::string& arch,
                       const std::filesystem::path& out, const std::string& only, int seconds) {
  const auto limits = value_or_throw(cu::limits_of_arch(arch));
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  PrefillBench bench(cubins, arch);
  std::ofstream lines(out);
  fmt::print("{}; set up after {:.1f} s; share of {} TFLOP/s\n", bench.device_name(), elapsed(),
             kGemmTflops);
  bool right = true;
  for (const MlaCell& cell : prefill_cells()) {
    if (cell.name().find(only) == std::string::npos) continue;
    if (elapsed() > seconds) {
      fmt::print("cut off after {:.0f} s\n", elapsed());
      break;
    }
    bench.enter(cell);
    for (const PrefillCandidate& candidate : prefill_candidates(cell, limits)) {
      const auto outcome = bench.run(candidate);
      const double us = outcome.timing.median_us, tflops = us > 0 ? cell.flops() / us * 1e-6 : 0;
      right &= outcome.error.empty();
      fmt::print(
          "{:<20} {:<26} {:9.1f} us  {:6.1f} TFLOP/s  {:5.1f} %  spread {:.3f}  error {:.2e} {}\n",
          cell.name(), candidate.brief, us, tflops, 100 * tflops / kGemmTflops,
          outcome.timing.spread, outcome.relative_error, outcome.error);
      std::fflush(stdout);
      nlohmann::json params = nlohmann::json::object();
      for (const auto& param : candidate.variant.params)
        params[param.name] = param.value;
      lines << nlohmann::json{{"kind", "prefill"},
                              {"name", cell.name()},
                              {"family", candidate.variant.family},
                              {"params", params},
                              {"brief", candidate.brief},
                              {"error", outcome.error},
                              {"us", us},
                              {"min_us", outcome.timing.min_us},
                              {"spread", outcome.timing.spread},
                              {"tflops", tflops},
                              {"relative_error", outcome.relative_error}}
                   .dump()
            << "\n"
            << std::flush;
    }
  }
  fmt::print("{:.1f} s\n", elapsed());
  return right;
}

}  // namespace ingot::bench
