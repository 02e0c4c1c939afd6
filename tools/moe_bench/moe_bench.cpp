#include "tools/moe_bench/moe_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <span>

#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/reference/numerics.hpp"
#include "tools/moe_bench/random_jobs.hpp"

namespace ingot::bench {
namespace {

constexpr int kHidden = 4096, kExperts = 256, kTopk = 6, kMostInter = 2048;
constexpr int kTokens = 2048;  // eight nodes of 256
constexpr std::size_t kJobs = kRandomJobs, kJobElements = 32 * 128;
constexpr float kLimit = 10;
constexpr double kTolerance = 2e-3;  // relative Frobenius norm

template <class T>
cu::DeviceBuffer upload(const cu::Context& context, const cu::Stream& stream,
                        const std::vector<T>& values) {
  auto buffer = cu::DeviceBuffer::allocate(context, values.size() * sizeof(T));
  buffer.copy_from_host(stream, std::as_bytes(std::span(values)));
  stream.synchronize();
  return buffer;
}

/// Jobs of gate and up, and of down, of one expert.
std::size_t gate_up_jobs(int inter) {
  return static_cast<std::size_t>(inter / 16 * (kHidden / 128));
}
std::size_t down_jobs(int inter) {
  return static_cast<std::size_t>(kHidden / 32 * (inter / 128));
}
std::size_t set_jobs(int inter) {
  return kExperts * (gate_up_jobs(inter) + down_jobs(inter));
}

double relative_distance(std::span<const float> got, const auto& expected_at) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double expected = expected_at(i);
    error += (got[i] - expected) * (got[i] - expected);
    norm += expected * expected;
  }
  return std::sqrt(error / norm);  // NaN when either side has one
}

}  // namespace

MoeBench::MoeBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins)
    : cubins_(cubins),
      context_(cu::Context::retain(std::move(driver), 0)),
      stream_(cu::Stream::create(context_)) {
  const auto jobs = random_jobs();
  jobs_.resize(kJobs * kJobElements);
  for (std::size_t j = 0; j < kJobs; ++j)
    for (int row = 0; row < 32; ++row)
      for (int col = 0; col < 128; ++col) {
        const std::byte* job = &jobs[j * kernels::MOE_JOB_BYTES];
        jobs_[j * kJobElements + static_cast<std::size_t>(row * 128 + col)] =
            reference::e2m1_value(kernels::moe_job_code(job, row, col)) *
            reference::e8m0_value(kernels::moe_job_scale(job, row, col / 32));
      }
  arena_ = cu::DeviceBuffer::allocate(context_, set_jobs(kMostInter) * kernels::MOE_JOB_BYTES);
  for (std::size_t at = 0; at < arena_.bytes(); at += jobs.size())
    arena_.copy_from_host(stream_,
                          std::span(jobs).first(std::min(jobs.size(), arena_.bytes() - at)), at);
  stream_.synchronize();

  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  x_host_.resize(std::size_t{kTokens} * kHidden);
  for (std::size_t group = 0; group < x_host_.size() / 128; ++group) {
    const float magnitude = std::ldexp(1.0F, static_cast<int>(random() % 5) - 2);
    for (std::size_t i = 0; i < 128; ++i)
      x_host_[group * 128 + i] = reference::bf16_round(normal(random) * magnitude);
  }
  std::vector<std::uint8_t> codes(x_host_.size()), exponents(x_host_.size() / 128);
  reference::act_quant_bytes(x_host_, 128, codes, exponents);
  reference::act_quant(x_host_, 128);
  std::vector<float> scales;
  for (const auto exponent : exponents)
    scales.push_back(reference::e8m0_value(exponent));
  for (int token = 0; token < kTokens; ++token) {
    std::set<int> chosen;
    while (chosen.size() < kTopk)
      chosen.insert(static_cast<int>(random() % kExperts));
    std::vector<int> order(chosen.begin(), chosen.end());
    std::shuffle(order.begin(), order.end(), random);
    ids_.insert(ids_.end(), order.begin(), order.end());
    float sum = 0;
    for (int i = 0; i < kTopk; ++i) {
      same_ids_.push_back((i + token) % kTopk * 41 + 7);
      weights_host_.push_back(0.2F + static_cast<float>(random() % 1000) / 1000.0F);
      sum += weights_host_.back();
    }
    for (std::size_t i = 0; i < kTopk; ++i)
      weights_host_[static_cast<std::size_t>(token) * kTopk + i] *= 1.5F / sum;
  }
  x_ = upload(context_, stream_, codes);
  x_scale_ = upload(context_, stream_, scales);
  weights_ = upload(context_, stream_, weights_host_);
  ids_on_device_ = upload(context_, stream_, ids_);
  same_ids_on_device_ = upload(context_, stream_, same_ids_);
  const kernels::MoeDecodeProblem largest{.batch = 256, .inter = kMostInter};
  sums_ = cu::DeviceBuffer::allocate(
      context_, static_cast<std::size_t>(kernels::MoeDecode::sum_bytes(largest)));
  activations_ = cu::DeviceBuffer::allocate(
      context_, static_cast<std::size_t>(kernels::MoeDecode::activation_bytes(largest)));
  out_ = cu::DeviceBuffer::allocate(context_, std::size_t{256} * kHidden * 4);
  counters_ = cu::DeviceBuffer::allocate(context_, kernels::MOE_COUNTER_WORDS * 4);
  counters_.fill_bytes(stream_, 0);
  stream_.synchronize();
}

MoeBench::~MoeBench() = default;

int MoeBench::nodes() const {
  return cell_.tokens == 1 ? 64 : cell_.tokens == 4 ? 32 : cell_.tokens == 16 ? 16 : 8;
}

double MoeBench::experts_per_node() const {
  const auto pairs = static_cast<std::ptrdiff_t>(cell_.tokens * kTopk);
  double experts = 0;
  for (int node = 0; node < nodes(); ++node)
    experts += static_cast<double>(
        std::set<int>(ids().begin() + node * pairs, ids().begin() + (node + 1) * pairs).size());
  return experts / nodes();
}

void MoeBench::enter(const MoeCell& cell) {
  cell_ = cell;
  expected_.clear();
  exact_ = exact_token();
}

std::vector<double> MoeBench::exact_token() const {
  const auto inter = static_cast<std::size_t>(cell_.inter());
  const std::size_t job_rows = 32, job_cols = 128;
  // Row `row` of the job at `place` in the arena.
  const auto row_of = [&](std::size_t place, std::size_t row) {
    return &jobs_[place % kJobs * kJobElements + row * job_cols];
  };
  const auto dot = [&](std::size_t first_job, std::size_t row, const float* x, std::size_t cols) {
    double sum = 0;
    for (std::size_t col = 0; col < cols; col += job_cols) {
      const float* weights = row_of(first_job + col / job_cols, row);
      double part = 0;
      for (std::size_t i = 0; i < job_cols; ++i)
        part += static_cast<double>(weights[i]) * x[col + i];
      sum += part;
    }
    return static_cast<float>(sum);
  };
  std::vector<std::pair<int, float>> chosen;
  for (std::size_t i = 0; i < kTopk; ++i)
    chosen.emplace_back(ids()[i], weights_host_[i]);
  std::sort(chosen.begin(), chosen.end());
  std::vector<double> out(kHidden, 0.0);
  for (const auto& [id, weight] : chosen) {
    const auto expert = static_cast<std::size_t>(id);
    std::vector<float> h(inter);
    for (std::size_t i = 0; i < inter; ++i) {
      const std::size_t strip = expert * gate_up_jobs(cell_.inter()) + i / 16 * (kHidden / 128);
      const std::size_t row = i % 16 / 8 * 16 + i % 8;
      float gate = reference::bf16_round(dot(strip, row, x_host_.data(), kHidden));
      float up = reference::bf16_round(dot(strip, row + 8, x_host_.data(), kHidden));
      gate = std::min(gate, kLimit);
      up = std::clamp(up, -kLimit, kLimit);
      h[i] = reference::bf16_round(weight * (gate / (1.0F + std::exp(-gate)) * up));
    }
    reference::act_quant(h, 128);
    for (std::size_t row = 0; row < kHidden; ++row) {
      const std::size_t strip = kExperts * gate_up_jobs(cell_.inter()) +
                                expert * down_jobs(cell_.inter()) + row / job_rows * (inter / 128);
      const float value = dot(strip, row % job_rows, h.data(), inter);
      out[row] += cell_.tensor_parallel == 1 ? reference::bf16_round(value) : value;
    }
  }
  return out;
}

kernels::MoeDecodeArgs MoeBench::args_of(int node) const {
  const auto sets = static_cast<int>(set_jobs(kMostInter) / set_jobs(cell_.inter()));
  const auto* set = arena_.as<kernels::u8>() + static_cast<std::size_t>(node % sets) *
                                                   set_jobs(cell_.inter()) * kernels::MOE_JOB_BYTES;
  const std::ptrdiff_t token = std::ptrdiff_t{node} * cell_.tokens;
  const auto& ids_there = cell_.same_experts ? same_ids_on_device_ : ids_on_device_;
  return {.x = x_.as<kernels::fp8_e4m3>() + token * kHidden,
          .x_scale = x_scale_.as<float>() + token * (kHidden / 128),
          .experts = ids_there.as<int>() + token * kTopk,
          .weights = weights_.as<float>() + token * kTopk,
          .gate_up = set,
          .down = set + kExperts * gate_up_jobs(cell_.inter()) * kernels::MOE_JOB_BYTES,
          .sums = sums_.as<float>(),
          .activations = activations_.as<kernels::u8>(),
          .out = out_.as<float>(),
          .counters = counters_.as<kernels::u32>(),
          .limit = kLimit,
          .tokens = cell_.tokens};
}

void MoeBench::launch(const jit::Kernel& kernel, const MoeCandidate& candidate, bool early,
                      int node) const {
  cu::LaunchShape shape = candidate.shape;
  shape.programmatic = early;
  kernel.launch(stream_, shape, args_of(node));
}

std::vector<float> MoeBench::output() const {
  std::vector<float> values(static_cast<std::size_t>(cell_.tokens) * kHidden);
  out_.copy_to_host(stream_, std::as_writable_bytes(std::span(values)));
  stream_.synchronize();
  return values;
}

std::string MoeBench::check(const MoeCandidate& candidate, const jit::Kernel& kernel,
                            MoeOutcome& outcome) {
  std::vector<float> got;
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto* buffer : {&sums_, &activations_, &out_})
      buffer->fill_bytes(stream_, 0xff);
    launch(kernel, candidate, false, 0);
    auto values = output();
    if (turn > 0 && std::memcmp(values.data(), got.data(), got.size() * 4) != 0)
      return "launches differ";
    got = std::move(values);
  }
  outcome.relative_error =
      relative_distance(std::span(got).first(kHidden), [&](std::size_t i) { return exact_[i]; });
  if (!(outcome.relative_error <= kTolerance))
    return fmt::format("wrong: relative error {:.2e}", outcome.relative_error);
  if (expected_.empty()) expected_ = got;
  const double distance = relative_distance(got, [&](std::size_t i) { return expected_[i]; });
  if (!(distance <= kTolerance))
    return fmt::format("differs by {:.2e} from the first candidate", distance);
  return {};
}

MoeOutcome MoeBench::run(const MoeCandidate& candidate, bool thoroughly) {
  MoeOutcome outcome;
  const auto kernel = jit::Kernel::load(context_, value_or_throw(cubins_.load(candidate.variant)),
                                        candidate.variant.family);
  outcome.error = check(candidate, kernel, outcome);
  if (!outcome.error.empty()) return outcome;
  const MeasurePolicy policy =
      thoroughly ? MeasurePolicy{.batch_replays = 5, .max_replays = 20}
                 : MeasurePolicy{.warmup_replays = 1, .batch_replays = 4, .max_replays = 4};
  const auto timed = [&](bool early) {
    const cu::Graph graph =
        record_nodes(stream_, nodes(), [&](int node) { launch(kernel, candidate, early, node); });
    return measure(context_, stream_, graph, policy);
  };
  outcome.early = timed(true);
  if (thoroughly) outcome.plain = timed(false);
  return outcome;
}

}  // namespace ingot::bench
