#include "tools/indexer_bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "kernel_templates/compress_kv.space.hpp"
#include "kernel_templates/indexer_scores.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/indexer_topk.space.hpp"

namespace ingot::bench {
namespace {

constexpr int kTopk = 512, kPageEntries = 64, kKeyPageBytes = 64 * 68, kMostRows = 64;
constexpr int kPages = 300'000;                              // 1.3 GB of index keys
constexpr std::size_t kScoreFloats = std::size_t{64} << 20;  // 256 MB
constexpr std::size_t kOutBytes = std::size_t{128} << 20;
constexpr int kStateRows = 16;

std::size_t size(long long n) {
  return static_cast<std::size_t>(n);
}

template <class T>
cu::DeviceBuffer upload(const cu::Context& context, const cu::Stream& stream,
                        const std::vector<T>& values) {
  auto buffer = cu::DeviceBuffer::allocate(context, values.size() * sizeof(T));
  buffer.copy_from_host(stream, std::as_bytes(std::span(values)));
  stream.synchronize();
  return buffer;
}

bool compresses(const Cell& cell) {
  return cell.work != Work::scores && cell.work != Work::topk;
}
kernels::CompressKvProblem compress_problem(const Cell& cell) {
  kernels::CompressKvProblem problem{.sequences = cell.rows, .state_rows = kStateRows};
  if (cell.work == Work::compress_hca) problem.ratio = 128;
  if (cell.work == Work::compress_index) {
    problem.index_keys = true;
    problem.page_bytes = kKeyPageBytes;
    problem.entry_stride = kernels::INDEX_CODE_BYTES;
    problem.scales_beside = false;
  }
  return problem;
}

}  // namespace

std::string Cell::name() const {
  const char* const names[] = {"scores", "topk", "compress CSA", "compress HCA", "compress index"};
  const std::string what = fmt::format("{} B{}", names[static_cast<int>(work)], rows);
  if (compresses(*this)) return what + (entries > 0 ? " completing" : " within a block");
  return fmt::format("{} {}", what, entries);
}

double Cell::bytes() const {
  const double per_row = static_cast<double>(entries);
  if (work == Work::scores) return rows * (per_row * (68.0 + 4.0) + 64.0 * 70.0);
  if (work == Work::topk) return rows * (per_row * 4.0 + kTopk * 4.0);
  const auto problem = compress_problem(*this);
  const double width = kernels::compress_kv_width(problem.ratio, problem.index_keys);
  const double row = 2.0 * width * 4.0;  // K and S: in, ape, and out; then what completing reads
  const double state = problem.ratio == 4 ? row : 1.5 * row;
  return rows * (row * 1.5 + state + entries * (problem.ratio == 4 ? 3.5 * row : 0.0) + 584.0);
}

std::vector<Cell> indexer_cells() {
  std::vector<Cell> cells;
  for (const Work work : {Work::topk, Work::scores})
    for (const int entries : {2048, 32768, 262144})
      for (const int rows : {1, 16, 64})
        cells.push_back({work, rows, entries});
  for (const Work work : {Work::compress_csa, Work::compress_hca, Work::compress_index})
    for (const int rows : {1, 64})
      for (const int completing : {0, 1})
        cells.push_back({work, rows, completing});
  return cells;
}

std::vector<Candidate> candidates_of(const std::vector<Cell>& cells,
                                     const cu::DeviceLimits& limits) {
  std::vector<Candidate> all;
  for (const Cell& cell : cells) {
    const auto add = [&]<class Family>(const Family&, const typename Family::Problem& problem,
                                       auto... device) {
      if (!Family::runs_on(limits)) return;
      for (const auto& params : Family::space(problem, limits).candidates()) {
        cu::LaunchShape shape = Family::launch_shape(problem, params, device...);
        shape.programmatic = false;
        all.push_back({{std::string(Family::kStem), jit::param_values(params)}, shape});
      }
    };
    if (cell.work == Work::topk) {
      add(kernels::IndexerTopk{}, {.rows = cell.rows, .entries = cell.entries, .topk = kTopk});
    } else if (cell.work == Work::scores) {
      add(kernels::IndexerScores{}, {.rows = cell.rows}, limits);
      add(kernels::IndexerScoresSm90{}, {.rows = cell.rows}, limits);
    } else {
      add(kernels::CompressKv{}, compress_problem(cell));
    }
  }
  return all;
}

IndexerBench::IndexerBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins)
    : cubins_(cubins),
      context_(cu::Context::retain(std::move(driver), 0)),
      stream_(cu::Stream::create(context_)),
      limits_(cu::limits_of(context_.device())) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  // Keys: any codes; scales within four binades. A part is made and copied all over the pool.
  constexpr int kMade = 10'000;
  std::vector<std::uint8_t> part(size(kMade) * kKeyPageBytes);
  for (std::size_t i = 0; i < part.size(); ++i) {
    const bool is_code = i % kKeyPageBytes < size(kPageEntries * kernels::INDEX_CODE_BYTES);
    part[i] = static_cast<std::uint8_t>(is_code ? random() : 125 + random() % 4);
  }
  pool_ = cu::DeviceBuffer::allocate(context_, size(kPages) * kKeyPageBytes);
  for (int page = 0; page < kPages; page += kMade)
    pool_.copy_from_host(stream_, std::as_bytes(std::span(part)), size(page) * kKeyPageBytes);
  stream_.synchronize();
  std::vector<int> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  pages.insert(pages.end(), pages.begin(), pages.end());  // a window of it is a page table
  pages_ = upload(context_, stream_, std::vector<int>(pages));

  std::vector<std::uint8_t> codes(size(kMostRows) * 64 * kernels::INDEX_CODE_BYTES),
      scales(size(kMostRows) * 64 * 4);
  std::vector<std::uint16_t> weights(size(kMostRows) * 64);
  for (auto& code : codes)
    code = static_cast<std::uint8_t>(random());
  for (auto& scale : scales)
    scale = static_cast<std::uint8_t>(126 + random() % 3);
  for (auto& weight : weights)
    weight = static_cast<std::uint16_t>(0x3c00 + random() % 256);
  q_ = upload(context_, stream_, codes);
  q_scales_ = upload(context_, stream_, scales);
  weights_ = upload(context_, stream_, weights);
  std::vector<float> drawn(1 << 16);
  for (float& value : drawn)
    value = normal(random);
  score_values_.resize(kScoreFloats);
  for (float& value : score_values_)
    value = drawn[random() >> 16];
  scores_ = upload(context_, stream_, score_values_);
  out_ = cu::DeviceBuffer::allocate(context_, kOutBytes);
  std::vector<int> ascending(256);
  std::iota(ascending.begin(), ascending.end(), 0);
  sequences_ = upload(context_, stream_, ascending);
  row_starts_ = upload(context_, stream_, ascending);
  const auto zeros = [&](std::size_t bytes) {
    auto buffer = cu::DeviceBuffer::allocate(context_, bytes);
    buffer.fill_bytes(stream_, 0);
    stream_.synchronize();
    return buffer;
  };
  selected_ = zeros(kMostRows * 4);
  nans_ = zeros(kMostRows * 4);
  arrived_ = zeros(kMostRows * 4);
  candidate_keys_ = zeros(std::size_t{32} << 20);
  candidate_indices_ = zeros(std::size_t{32} << 20);
  state_ = zeros(size(kMostRows) * kStateRows * 2048 * 4);
  ape_ = upload(context_, stream_, std::vector<float>(drawn.begin(), drawn.begin() + 128 * 512));
  norm_ = upload(context_, stream_, std::vector<std::uint16_t>(512, 0x3f80));
  frequencies_ = upload(context_, stream_, std::vector<float>(32, 0.01F));
}

int IndexerBench::nodes(const Cell& cell) const {
  return cell.bytes() > 2e8 ? 8 : 48;
}

void IndexerBench::enter(const Cell& cell) {
  if (entered_ == cell.name()) return;
  entered_ = cell.name();
  expected_.clear();
  counts_ = upload(context_, stream_, std::vector<int>(kMostRows, cell.entries));
  const int ratio = cell.work == Work::compress_hca ? 128 : 4;
  positions_ = upload(context_, stream_,
                      std::vector<int>(kMostRows, 128 * 100 + (cell.entries > 0 ? ratio - 1 : 1)));
}

void IndexerBench::launch(const jit::Kernel& kernel, const cu::LaunchShape& shape, const Cell& cell,
                          int node) {
  const int pages = std::max((cell.entries + kPageEntries - 1) / kPageEntries, 1);
  const int* const table =
      pages_.as<int>() + static_cast<long long>(node) * cell.rows * pages % kPages;
  if (cell.work == Work::scores) {
    kernel.launch(stream_, shape,
                  kernels::IndexerScoresArgs{.q = q_.as<kernels::u8>(),
                                             .q_scales = q_scales_.as<kernels::u8>(),
                                             .weights = weights_.as<kernels::bf16>(),
                                             .pool = pool_.as<kernels::u8>(),
                                             .page_table = table,
                                             .sequences = sequences_.as<int>(),
                                             .counts = counts_.as<int>(),
                                             .scores = out_.as<float>(),
                                             .score_stride = cell.entries,
                                             .page_stride = pages,
                                             .rows = cell.rows,
                                             .all_taken = kTopk});
    return;
  }
  if (cell.work == Work::topk) {
    const std::size_t floats = size(cell.rows) * size(cell.entries);
    const std::size_t sets = kScoreFloats / floats;
    kernel.launch(
        stream_, shape,
        kernels::IndexerTopkArgs{.scores = scores_.as<float>() + size(node) % sets * floats,
                                 .counts = counts_.as<int>(),
                                 .sequences = sequences_.as<int>(),
                                 .page_table = table,
                                 .indices = out_.as<int>(),
                                 .selected_counts = selected_.as<int>(),
                                 .nan_counts = nans_.as<kernels::u32>(),
                                 .candidate_keys = candidate_keys_.as<kernels::u32>(),
                                 .candidate_indices = candidate_indices_.as<int>(),
                                 .arrived = arrived_.as<kernels::u32>(),
                                 .score_stride = cell.entries,
                                 .page_stride = pages});
    return;
  }
  // Rows of K, then of S, out of the scores; each sequence has a page of its own, the same in all
  // nodes.
  const long long stride = 2048;
  const float* const rows = scores_.as<float>() + size(node % 48) * size(kMostRows * stride);
  kernel.launch(stream_, shape,
                kernels::CompressKvArgs{.k = rows,
                                        .s = rows + 1024,
                                        .ape = ape_.as<float>(),
                                        .norm_weight = norm_.as<kernels::bf16>(),
                                        .frequencies = frequencies_.as<float>(),
                                        .row_starts = row_starts_.as<int>(),
                                        .positions = positions_.as<int>(),
                                        .slots = sequences_.as<int>(),
                                        .page_table = sequences_.as<int>(),
                                        .pool = out_.as<kernels::u8>(),
                                        .state = state_.as<float>(),
                                        .row_stride = stride,
                                        .page_stride = 1,
                                        .epsilon = 1e-6F});
}

std::vector<std::byte> IndexerBench::result(const jit::Kernel& kernel, const Candidate& candidate,
                                            const Cell& cell) {
  const std::size_t bytes = cell.work == Work::topk     ? size(cell.rows) * kTopk * 4
                            : cell.work == Work::scores ? size(cell.rows) * size(cell.entries) * 4
                                                        : std::size_t{8} << 20;
  out_.fill_bytes(stream_, 0xee);
  state_.fill_bytes(stream_, 0);
  launch(kernel, candidate.shape, cell, 0);
  std::vector<std::byte> got(bytes);
  out_.copy_to_host(stream_, std::span(got));
  stream_.synchronize();
  return got;
}

std::string IndexerBench::check(const Cell& cell, const std::vector<std::byte>& got) {
  if (cell.work == Work::topk && expected_.empty()) {
    std::vector<int> pages(size(cell.rows) * size((cell.entries + 63) / 64));
    pages_.copy_to_host(stream_, std::as_writable_bytes(std::span(pages)));
    stream_.synchronize();
    std::vector<int> all;
    for (int row = 0; row < cell.rows; ++row) {
      const float* const values = &score_values_[size(row) * size(cell.entries)];
      std::vector<int> order(size(cell.entries));
      std::iota(order.begin(), order.end(), 0);
      std::nth_element(order.begin(), order.begin() + kTopk, order.end(), [&](int a, int b) {
        return values[a] != values[b] ? values[a] > values[b] : a < b;
      });
      std::sort(order.begin(), order.begin() + kTopk);
      for (int i = 0; i < kTopk; ++i)
        all.push_back(
            pages[size(row) * size((cell.entries + 63) / 64) + size(order[size(i)] / 64)] * 64 +
            order[size(i)] % 64);
    }
    expected_.resize(all.size() * 4);
    std::memcpy(expected_.data(), all.data(), expected_.size());
  }
  if (expected_.empty()) {
    expected_ = got;
    return {};
  }
  if (cell.work != Work::scores) return got == expected_ ? "" : "another result";
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); i += 4) {
    float a = 0, b = 0;
    std::memcpy(&a, &got[i], 4);
    std::memcpy(&b, &expected_[i], 4);
    if (std::isnan(a) || std::isnan(b)) return "NaN";
    worst = std::max(worst, static_cast<double>(std::fabs(a - b)));
    largest = std::max(largest, static_cast<double>(std::fabs(b)));
  }
  return worst <= 4e-3 * largest ? "" : fmt::format("{:.2e} of the largest away", worst / largest);
}

Outcome IndexerBench::run(const Cell& cell, const Candidate& candidate) {
  enter(cell);
  const auto kernel = jit::Kernel::load(context_, value_or_throw(cubins_.load(candidate.variant)),
                                        candidate.variant.family);
  kernel.prefer_shared_memory(context_);
  Outcome outcome;
  const auto got = result(kernel, candidate, cell);
  outcome.error = check(cell, got);
  if (outcome.error.empty() && result(kernel, candidate, cell) != got)
    outcome.error = "other bits the second time";
  if (!outcome.error.empty()) return outcome;
  for (const bool dependent : {false, true}) {
    cu::LaunchShape shape = candidate.shape;
    shape.programmatic = dependent;
    const auto graph =
        record_nodes(stream_, nodes(cell), [&](int node) { launch(kernel, shape, cell, node); });
    (dependent ? outcome.dependent : outcome.plain) = measure(context_, stream_, graph, {});
  }
  return outcome;
}

}  // namespace ingot::bench
