#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "kernel_templates/common/kv_layout.cuh"
#include "runtime/cuda/stream.hpp"
#include "src/executor/device_state.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/executor/step_buffers.hpp"
#include "src/executor/step_program.hpp"
#include "src/reference/numerics.hpp"
#include "tests/gpu/device_model.hpp"
#include "tests/src/reference/oracle_dump.hpp"
#include "tests/support/device_data.hpp"
#include "tools/kernel_bench/linear_data.hpp"

using namespace ingot;
using namespace ingot::executor;

namespace {

/// Device memory of other owners, as host vectors.
template <class T>
std::vector<T> fetch(const cu::Stream& stream, const void* from, std::size_t count) {
  std::vector<T> values(count);
  const cu::DriverApi& driver = stream.driver();
  driver.check(driver.cuMemcpyDtoHAsync_v2(values.data(), reinterpret_cast<cu::CUdeviceptr>(from),
                                           count * sizeof(T), stream.raw()),
               "cuMemcpyDtoHAsync");
  stream.synchronize();
  return values;
}
template <class T>
void store(const cu::Stream& stream, void* to, const std::vector<T>& values) {
  const cu::DriverApi& driver = stream.driver();
  driver.check(driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<cu::CUdeviceptr>(to), values.data(),
                                           values.size() * sizeof(T), stream.raw()),
               "cuMemcpyHtoDAsync");
  stream.synchronize();
}

std::vector<float> floats(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), test::bf16_value);
  return values;
}
std::vector<std::uint16_t> bf16s(const float* values, std::size_t count) {
  std::vector<std::uint16_t> bits(count);
  std::transform(values, values + count, bits.begin(), test::bf16_bits);
  return bits;
}

constexpr const char* kSharedWithRouter = "shared expert, router";

/// A packed KV entry as 512 floats.
std::vector<float> kv_entry(const std::uint8_t* entry) {
  std::vector<float> values(512);
  for (std::size_t i = 0; i < 448; ++i) {
    const float scale = std::ldexp(1.0F, entry[576 + i / 64] - 127);
    values[i] = reference::e4m3_value(entry[i]) * scale;
  }
  for (std::size_t i = 0; i < 64; ++i) {
    values[448 + i] = test::bf16_value(
        static_cast<std::uint16_t>(entry[448 + 2 * i] | (entry[449 + 2 * i] << 8)));
  }
  return values;
}

float e2m1(std::uint8_t code) {
  constexpr float kValues[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  return (code & 8U) != 0 ? -kValues[code & 7U] : kValues[code & 7U];
}

/// One prompt's step on the device, run launch by launch: in front of each sublayer its input is
/// replaced by the oracle's, so that every block is checked on the oracle's own input.
class BlockCheck {
 public:
  BlockCheck(const cu::Context& context, const test::OracleDump& dump, const Checkpoint& checkpoint)
      : dump_(dump),
        config_(checkpoint.config()),
        stream_(cu::Stream::create(context)),
        source_(test::kernel_source(context)),
        weights_(test::load_weights(context, checkpoint)),
        memory_(context, stream_, config_, 1, 4096, kMostNarrowRows),
        state_(context, config_, {.slots = 2, .csa_pages = 4, .hca_pages = 4, .max_context = 4096}),
        scratch_(context, stream_),
        library_(context, *source_.kernels, nullptr,
                 {.device = source_.device, .tp_size = 1, .policy = {}}, {}),
        b_(memory_.buffers()) {
    tokens_ = static_cast<int>(dump.tokens().size());
    bucket_ = bucket_of({.rows = tokens_,
                         .sequences = 1,
                         .sequence_rows = tokens_,
                         .logit_rows = tokens_,
                         .context = tokens_},
                        4096);
    kernels_ = StepKernels::want(library_, config_, step_problems(config_, 1, bucket_));
    library_.prepare(16);
  }

  void run() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel that hangs is named by the last line
    const StepProgram program(config_, bucket_, kernels_, library_, weights_, state_, b_,
                              scratch_.take(scratch_of(library_, kernels_, bucket_)));
    upload();
    for (const StepLaunch& launch : program.launches()) {
      if (launch.layer <= 0) fmt::print("  {} of layer {}\n", launch.name, launch.layer);
      cu::launch(stream_, launch.kernel->kernel.function(), launch.kernel->shape,
                 launch.args.data());
      INFO(launch.name << " of layer " << launch.layer);
      stream_.synchronize();
      after(launch);
      replace_input(launch);
    }
    // A launch that got another name is compared with nothing.
    const bool joined = kernels_.shared_with_router;
    for (const char* name : {"kv append, q norm", "q norm, rope", "attention", "wo_b",
                             joined ? kSharedWithRouter : "shared w1, w3",
                             joined ? kSharedWithRouter : "router", "expert sum"}) {
      INFO(name);
      CHECK(seen_.contains(name));
    }
  }

  /// The whole model's logits, of a run without replaced inputs.
  void run_whole() {
    const StepProgram program(config_, bucket_, kernels_, library_, weights_, state_, b_,
                              scratch_.take(scratch_of(library_, kernels_, bucket_)));
    upload();
    program.launch(stream_);
    const auto width = static_cast<std::size_t>(config_.vocab_size);
    const auto logits = fetch<float>(stream_, b_.logits, static_cast<std::size_t>(tokens_) * width);
    const test::DumpTensor& wanted = dump_.at("logits");
    std::vector<double> errors;
    int same = 0;
    for (int r = 0; r < tokens_; ++r) {
      const float* got = &logits[static_cast<std::size_t>(r) * width];
      const float* want = wanted.row(r);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < width; ++i) {
        difference += std::pow(got[i] - want[i], 2.0);
        norm += std::pow(want[i], 2.0);
      }
      errors.push_back(std::sqrt(difference / norm));
      same +=
          std::max_element(got, got + width) - got == std::max_element(want, want + width) - want
              ? 1
              : 0;
    }
    std::sort(errors.begin(), errors.end());
    fmt::print("  logits: median relative error {:.4f}, same argmax {} of {}\n",
               errors[errors.size() / 2], same, tokens_);
    CHECK(errors[errors.size() / 2] < 0.10);
    CHECK(same >= tokens_ * 85 / 100);
  }

 private:
  void upload() {
    StepInputs in{};
    for (int r = 0; r < bucket_.rows; ++r) {
      in.ids(bucket_.rows)[r] = r < tokens_ ? dump_.tokens()[static_cast<std::size_t>(r)] : 0;
      in.positions(bucket_.rows)[r] = r < tokens_ ? r : 0;
      in.sequences(bucket_.rows)[r] = r < tokens_ ? kSlot : -1;
      in.picks[r] = r;
    }
    in.row_starts[1] = tokens_;
    in.slots[0] = kSlot;
    state_.write_csa_row(stream_, kSlot, 0, kCsaPages);
    state_.write_hca_row(stream_, kSlot, 0, kHcaPages);
    memory_.upload(stream_, in, bucket_.rows);
    stream_.synchronize();
  }

  const test::DumpTensor* dumped(int layer, const char* what) const {
    return dump_.find(fmt::format("layers.{}.{}", layer, what));
  }

  /// The rows of the prompt that a tensor of the dump holds.
  std::vector<std::size_t> rows_of(const test::DumpTensor& tensor) const {
    std::vector<std::size_t> rows;
    if (tensor.rows() == tokens_) {
      for (int r = 0; r < tokens_; ++r)
        rows.push_back(static_cast<std::size_t>(r));
    } else {
      for (const std::int64_t row : dump_.rows())
        rows.push_back(static_cast<std::size_t>(row));
    }
    return rows;
  }

  /// Replaces a sublayer's input, as bf16 and quantised.
  void inject(const test::DumpTensor& input) {
    const auto hidden = static_cast<std::size_t>(config_.hidden_size);
    auto x = fetch<std::uint16_t>(stream_, b_.x, static_cast<std::size_t>(bucket_.rows) * hidden);
    const auto rows = rows_of(input);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto bits = bf16s(input.row(static_cast<std::int64_t>(i)), hidden);
      std::copy(bits.begin(), bits.end(),
                x.begin() + static_cast<std::ptrdiff_t>(rows[i] * hidden));
    }
    store(stream_, b_.x, x);
    const auto quantized = bench::quantized_input(std::move(x), bucket_.rows, config_.hidden_size);
    store(stream_, b_.x_codes, quantized.tiles());
    store(stream_, b_.x_scale, quantized.tile_scales());
    store(stream_, b_.z_codes, quantized.codes);
    const auto groups = static_cast<std::size_t>(config_.hidden_size / 128);
    const auto stride =
        static_cast<std::size_t>(kernels::act_quant_scale_stride(config_.hidden_size));
    std::vector<float> scales(static_cast<std::size_t>(bucket_.rows) * stride);
    for (std::size_t row = 0; row < static_cast<std::size_t>(bucket_.rows); ++row)
      std::copy_n(quantized.scales.begin() + static_cast<std::ptrdiff_t>(row * groups), groups,
                  scales.begin() + static_cast<std::ptrdiff_t>(row * stride));
    store(stream_, b_.z_scale, scales);
  }

  /// Behind a hyper-connection: whichever launch of the sublayer comes first.
  void replace_input(const StepLaunch& launch) {
    const char* const what = launch.name == "attention hyper-connection" ? "attn_in"
                             : launch.name == "expert hyper-connection"  ? "ffn_in"
                                                                         : nullptr;
    if (what == nullptr) return;
    if (const auto* input = dumped(launch.layer, what)) inject(*input);
  }

  void compare(int layer, const char* what, const std::vector<float>& all, double limit,
               double worst_limit = 1e9) {
    const test::DumpTensor* wanted = dumped(layer, what);
    if (wanted == nullptr) return;
    const std::size_t width = wanted->width();
    const auto rows = rows_of(*wanted);
    double difference = 0, norm = 0, worst = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (other_picks_.contains({layer, rows[i]})) continue;  // it attends to other keys
      double row_difference = 0, row_norm = 0;
      for (std::size_t c = 0; c < width; ++c) {
        const double want = wanted->row(static_cast<std::int64_t>(i))[c];
        row_difference += std::pow(all[rows[i] * width + c] - want, 2.0);
        row_norm += want * want;
      }
      difference += row_difference;
      norm += row_norm;
      worst = std::max(worst, std::sqrt(row_difference / std::max(row_norm, 1e-30)));
    }
    report(layer, what, std::sqrt(difference / std::max(norm, 1e-30)), worst, limit, worst_limit);
  }

  void report(int layer, const char* what, double error, double worst, double limit,
              double worst_limit) {
    fmt::print("  layers.{}.{}: {:.2e} in all, {:.2e} worst row (limit {:.0e})\n", layer, what,
               error, worst, limit);
    CAPTURE(layer, what, error, worst);
    CHECK(error < limit);
    CHECK(worst < worst_limit);
  }

  std::vector<float> bf16_rows(const void* from, std::size_t width) const {
    return floats(
        fetch<std::uint16_t>(stream_, from, static_cast<std::size_t>(bucket_.rows) * width));
  }

  /// Entries of a pool whose pages were given by the page table.
  std::vector<float> entries(const kernels::u8* pool, const std::vector<int>& pages,
                             std::int64_t count) const {
    std::vector<float> values;
    for (std::int64_t j = 0; j < count; ++j) {
      const auto page = static_cast<std::size_t>(pages[static_cast<std::size_t>(j / 64)]);
      const auto entry =
          fetch<std::uint8_t>(stream_,
                              pool + page * kernels::KV_PAGE_BYTES +
                                  static_cast<std::size_t>(j % 64) * kernels::KV_ENTRY_STRIDE,
                              584);
      const auto decoded = kv_entry(entry.data());
      values.insert(values.end(), decoded.begin(), decoded.end());
    }
    return values;
  }

  void compare_entries(int layer, const char* what, const std::vector<float>& got) {
    const test::DumpTensor* wanted = dumped(layer, what);
    if (wanted == nullptr) return;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      difference += std::pow(got[i] - wanted->values[i], 2.0);
      norm += std::pow(wanted->values[i], 2.0);
    }
    const double error = std::sqrt(difference / std::max(norm, 1e-30));
    report(layer, what, error, error, 1e-2, 1e9);
  }

  void after(const StepLaunch& launch) {
    const int layer = launch.layer;
    if (layer < 0 || dumped(layer, "attn_in") == nullptr) return;
    seen_.insert(std::string(launch.name));
    const auto hidden = static_cast<std::size_t>(config_.hidden_size);
    const auto heads = static_cast<std::size_t>(config_.num_heads);
    if (launch.name == "q norm, rope") compare(layer, "q", bf16_rows(b_.q, heads * 512), 1e-2);
    if (launch.name == "kv append, q norm") {
      // The last rows of the prompt are in the ring.
      std::vector<float> kv(static_cast<std::size_t>(tokens_) * 512);
      for (int p = 0; p < tokens_; ++p) {
        const auto slot = static_cast<std::size_t>(kSlot * kWindowRing + p % kWindowRing);
        const auto entry = fetch<std::uint8_t>(
            stream_,
            state_.layer(static_cast<std::size_t>(layer)).window +
                slot / 64 * kernels::KV_PAGE_BYTES + slot % 64 * kernels::KV_ENTRY_STRIDE,
            584);
        const auto decoded = kv_entry(entry.data());
        std::copy(decoded.begin(), decoded.end(), kv.begin() + p * 512);
      }
      compare(layer, "kv", kv, 1e-2);
    }
    if (launch.name == "compress kv" && dumped(layer, "compressed") != nullptr) {
      const LayerState& at = state_.layer(static_cast<std::size_t>(layer));
      const auto& pages = config_.ratio(layer) == 4 ? kCsaPages : kHcaPages;
      compare_entries(layer, "compressed",
                      entries(at.entries, pages, dumped(layer, "compressed")->rows()));
    }
    if (launch.name == "compress index keys" && dumped(layer, "index_k") != nullptr) {
      const std::int64_t count = dumped(layer, "index_k")->rows();
      std::vector<float> keys;
      for (std::int64_t j = 0; j < count; ++j) {
        const auto page = fetch<std::uint8_t>(
            stream_,
            state_.layer(static_cast<std::size_t>(layer)).index_keys +
                static_cast<std::size_t>(kCsaPages[static_cast<std::size_t>(j / 64)]) *
                    kIndexPageBytes,
            kIndexPageBytes);
        for (std::size_t d = 0; d < 128; ++d) {
          const std::uint8_t byte = page[static_cast<std::size_t>(j % 64) * 64 + d / 2];
          const std::uint8_t scale =
              page[std::size_t{64} * 64 + static_cast<std::size_t>(j % 64) * 4 + d / 32];
          keys.push_back(e2m1(d % 2 == 0 ? byte & 15U : byte >> 4U) *
                         std::ldexp(1.0F, scale - 127));
        }
      }
      compare_entries(layer, "index_k", keys);
    }
    if (launch.name == "indexer top-k") compare_picks(layer);
    if (launch.name == "attention") compare(layer, "o", bf16_rows(b_.o, heads * 512), 1e-2);
    if (launch.name == "wo_b") {
      // FP8 sums of the tensor cores are not exact: roundings flip before wo_b, and in o.
      compare(layer, "attn_out", bf16_rows(b_.f, hidden), 2.5e-2, 5e-2);
    }
    if (launch.name == "router" || launch.name == kSharedWithRouter) compare_experts(layer);
    if (launch.name == "expert sum") {
      compare(layer, "ffn_out", bf16_rows(b_.f, hidden), 1.5e-2, 5e-2);
    }
  }

  /// Blocks that the indexer chose; those of rows that see no more than are chosen are all.
  void compare_picks(int layer) {
    const auto topk = static_cast<std::size_t>(config_.index_topk);
    const auto got = fetch<int>(stream_, b_.selected, static_cast<std::size_t>(tokens_) * topk);
    const auto counts = fetch<int>(stream_, b_.selected_counts, static_cast<std::size_t>(tokens_));
    const test::DumpTensor* wanted = dumped(layer, "index_picks");
    const test::DumpTensor* scores = dumped(layer, "index_score");
    if (wanted == nullptr || scores == nullptr) return;
    const auto rows = rows_of(*wanted);
    int different = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::set<int> ours, theirs;
      for (std::size_t j = 0; j < static_cast<std::size_t>(counts[rows[i]]); ++j) {
        const int slot = got[rows[i] * topk + j];
        const auto page = std::find(kCsaPages.begin(), kCsaPages.end(), slot / 64);
        ours.insert(static_cast<int>(page - kCsaPages.begin()) * 64 + slot % 64);
      }
      for (std::size_t j = 0; j < wanted->width(); ++j) {
        const auto pick = static_cast<int>(wanted->row(static_cast<std::int64_t>(i))[j]);
        if (pick >= 0) theirs.insert(pick);
      }
      if (ours == theirs) continue;
      other_picks_.insert({layer, rows[i]});
      // A near tie: what differs scores within 1e-2 of the range of scores.
      const float* row = scores->row(static_cast<std::int64_t>(i));
      const auto visible = static_cast<std::ptrdiff_t>((rows[i] + 1) / 4);
      const auto [low, high] = std::minmax_element(row, row + visible);
      float best_missed = -1e30F, worst_taken = 1e30F;
      for (const int pick : theirs)
        if (!ours.contains(pick)) best_missed = std::max(best_missed, row[pick]);
      for (const int pick : ours)
        if (!theirs.contains(pick)) worst_taken = std::min(worst_taken, row[pick]);
      if (best_missed - worst_taken > 1e-2F * (*high - *low)) ++different;
    }
    fmt::print("  layers.{}.index_picks: {} of {} rows differ\n", layer, different, rows.size());
    CHECK(different == 0);
  }

  void compare_experts(int layer) {
    const test::DumpTensor* wanted = dumped(layer, "experts");
    if (wanted == nullptr) return;
    const auto top = static_cast<std::size_t>(config_.experts_per_token);
    const auto ids = fetch<int>(stream_, b_.experts, static_cast<std::size_t>(tokens_) * top);
    const auto weights =
        fetch<float>(stream_, b_.expert_weights, static_cast<std::size_t>(tokens_) * top);
    const auto rows = rows_of(*wanted);
    const test::DumpTensor* wanted_weights = dumped(layer, "expert_weights");
    int different = 0;
    double error = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::map<int, float> ours, theirs;
      for (std::size_t j = 0; j < top; ++j) {
        ours[ids[rows[i] * top + j]] = weights[rows[i] * top + j];
        theirs[static_cast<int>(wanted->row(static_cast<std::int64_t>(i))[j])] =
            wanted_weights->row(static_cast<std::int64_t>(i))[j];
      }
      for (const auto& [id, weight] : theirs) {
        if (!ours.contains(id)) {
          ++different;
          break;
        }
        error = std::max<double>(error, std::fabs(ours[id] - weight) / weight);
      }
    }
    fmt::print("  layers.{}.experts: {} of {} rows differ, weights within {:.1e}\n", layer,
               different, rows.size(), error);
    CHECK(different == 0);
    CHECK(error < 1e-3);
  }

  // Not the first of their pools, and not in order.
  static constexpr int kSlot = 1;
  const std::vector<int> kCsaPages{3, 1};
  const std::vector<int> kHcaPages{2};

  const test::OracleDump& dump_;
  const ModelConfig& config_;
  cu::Stream stream_;
  KernelSource source_;
  DeviceWeights weights_;
  StepMemory memory_;
  DeviceState state_;
  ScratchPool scratch_;
  KernelLibrary library_;
  const StepBuffers& b_;
  StepKernels kernels_;
  StepBucket bucket_;
  int tokens_ = 0;
  std::set<std::string> seen_;                         // launches of layers that the dump holds
  std::set<std::pair<int, std::size_t>> other_picks_;  // layer and row: near ties chosen otherwise
};

}  // namespace

TEST_CASE("every block of a step on the GPU agrees with the oracle on the oracle's input",
          "[gpu][model]") {
  auto context = test::gpu_context_or_skip();
  if (!context) return;
  for (const char* name : {"tiny", "tiny-tp"}) {
    fmt::print("{}:\n", name);
    const test::SyntheticModel model(name);
    const Checkpoint checkpoint = model.open();
    const test::OracleDump dump(test::golden_dump(name));
    BlockCheck check(*context, dump, checkpoint);
    check.run();
    check.run_whole();
  }
}
