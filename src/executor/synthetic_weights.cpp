#include "src/executor/synthetic_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "kernel_templates/moe_decode.args.h"
#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/reference/rope.hpp"
#include "src/weights/synth_values.hpp"

namespace ingot::executor {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
constexpr std::uint64_t kSeed = 1;

/// Parts of one group hold bytes that any of them could hold.
using Group = std::tuple<WeightLayout, TensorKind, int>;  // int: exponent

bool has_jobs(WeightLayout layout) {
  return layout == WeightLayout::gate_up_jobs || layout == WeightLayout::down_jobs;
}

/// Bytes that only make sense together: copies begin and end between them.
std::size_t unit_bytes(WeightLayout layout) {
  return has_jobs(layout) ? kernels::MOE_JOB_BYTES : sizeof(float);
}

/// The first `out.size()` bytes of a made-up tensor.
void fill(TensorKind kind, int exponent, const ModelConfig& config, std::span<std::byte> out) {
  TensorSpec spec;
  spec.name = fmt::format("block {} {}", static_cast<int>(kind), exponent);
  spec.kind = kind;
  spec.shape = {1};
  SynthTensor(spec, config, exponent, kSeed).fill(0, out);
}

/// Jobs of 32 rows, made of as many columns as they hold together.
void fill_jobs(int exponent, const ModelConfig& config, std::span<std::byte> out) {
  const auto columns =
      static_cast<int>(out.size() / kernels::MOE_JOB_BYTES) * kernels::MOE_JOB_COLS;
  const auto elements =
      static_cast<std::size_t>(kernels::MOE_JOB_ROWS) * static_cast<std::size_t>(columns);
  std::vector<std::byte> codes(elements / 2);
  std::vector<std::byte> scales(elements / 32);
  fill(TensorKind::fp4, exponent, config, codes);
  fill(TensorKind::group_scale, exponent, config, scales);
  kernels::pack_moe_down({.codes = codes.data(),
                          .scales = scales.data(),
                          .code_stride = columns / 2,
                          .scale_stride = columns / 32},
                         kernels::MOE_JOB_ROWS, columns, out);
}

/// Experts of every token: the first one by chance, the others evenly behind it, so that they
/// differ whatever the number of experts is.
void fill_token_experts(const ModelConfig& config, std::int64_t first_row,
                        std::span<std::byte> out) {
  const auto experts = static_cast<std::uint64_t>(config.num_experts);
  const auto chosen = static_cast<std::uint64_t>(config.experts_per_token);
  for (std::size_t i = 0; i < out.size() / sizeof(std::uint16_t); ++i) {
    const std::uint64_t token = static_cast<std::uint64_t>(first_row) + i / chosen;
    const std::uint64_t first = (token + 1) * 0x9E3779B97F4A7C15 >> 32;  // Fibonacci hashing
    const auto expert =
        static_cast<std::uint16_t>((first + i % chosen * (experts / chosen)) % experts);
    std::memcpy(out.data() + i * sizeof(expert), &expert, sizeof(expert));
  }
}

class SyntheticFiller {
 public:
  SyntheticFiller(const WeightPlacement& placement, WeightStore& store)
      : config_(placement.config), store_(store), writer_(store.open_writer(kBlockBytes)) {
    const std::vector<TensorSpec> table = tensor_table(config_);
    const std::vector<int> exponents = synth_exponents(config_, table);
    for (std::size_t i = 0; i < table.size(); ++i)
      exponents_.emplace(table[i].name, exponents[i]);
    for (const WeightPart& part : placement.parts) {
      if (part.layout == WeightLayout::frequencies || part.layout == WeightLayout::token_experts) {
        write_whole(part);
      } else {
        groups_[group_of(part)].push_back(&part);
      }
    }
  }

  void fill_groups() {
    for (auto& [group, parts] : groups_) {
      // The largest part is the source of all others.
      std::stable_sort(parts.begin(), parts.end(), [](const WeightPart* a, const WeightPart* b) {
        return a->bytes > b->bytes;
      });
      write_block(*parts.front());
    }
    writer_->finish();
    for (const auto& [group, parts] : groups_) {
      repeat_block(*parts.front());
      for (std::size_t i = 1; i < parts.size(); ++i)
        copy_part(*parts.front(), *parts[i]);
    }
    store_.finish();
  }

 private:
  int exponent_of(const WeightPart& part) const {
    // The codes of FP8 weights have one magnitude; their scales have the weight's.
    return part.layout == WeightLayout::fp8_tiles ? 0 : exponents_.at(part.tensor.name);
  }
  Group group_of(const WeightPart& part) const {
    return {part.layout, part.tensor.kind, exponent_of(part)};
  }

  /// As much of a part as is made on the host.
  static std::size_t block_bytes(const WeightPart& part) {
    const std::size_t unit = unit_bytes(part.layout);
    return static_cast<std::size_t>(std::min<std::uint64_t>(part.bytes, kBlockBytes / unit * unit));
  }

  void write(std::uint64_t offset, std::size_t bytes,
             const std::function<void(std::span<std::byte>)>& make) {
    make(writer_->staging().first(bytes));
    writer_->write(offset, bytes);
  }

  void write_block(const WeightPart& part) {
    const int exponent = exponent_of(part);
    write(part.offset, block_bytes(part), [&](std::span<std::byte> out) {
      if (has_jobs(part.layout)) {
        fill_jobs(exponent, config_, out);
      } else {
        fill(part.tensor.kind, exponent, config_, out);
      }
    });
  }

  void write_whole(const WeightPart& part) {
    if (part.layout == WeightLayout::frequencies) {
      const std::vector<float> made = reference::rope_frequencies(config_, part.ratio);
      write(part.offset, static_cast<std::size_t>(part.bytes),
            [&](std::span<std::byte> out) { std::memcpy(out.data(), made.data(), out.size()); });
      return;
    }
    const std::uint64_t row_bytes = part.strip_bytes();
    const std::uint64_t step = kBlockBytes / row_bytes * row_bytes;
    for (std::uint64_t at = 0; at < part.bytes; at += step) {
      write(part.offset + at, static_cast<std::size_t>(std::min(step, part.bytes - at)),
            [&](std::span<std::byte> out) {
              fill_token_experts(config_, static_cast<std::int64_t>(at / row_bytes), out);
            });
    }
  }

  /// Doubles what is there until the part is full.
  void repeat_block(const WeightPart& part) {
    for (std::uint64_t done = block_bytes(part); done < part.bytes;) {
      const std::uint64_t bytes = std::min(done, part.bytes - done);
      store_.copy(part.offset, part.offset + done, bytes);
      done += bytes;
    }
  }

  /// Fills `part` from `source`, from somewhere in its block, so that layers differ where they can.
  void copy_part(const WeightPart& source, const WeightPart& part) {
    const std::uint64_t unit = unit_bytes(part.layout);
    const std::uint64_t starts =
        std::min<std::uint64_t>(source.bytes - part.bytes, block_bytes(source)) / unit + 1;
    const std::uint64_t start = std::hash<std::string_view>{}(part.tensor.name) % starts * unit;
    store_.copy(source.offset + start, part.offset, part.bytes);
  }

  const ModelConfig& config_;
  WeightStore& store_;
  std::unique_ptr<WeightWriter> writer_;
  std::unordered_map<std::string, int> exponents_;
  std::map<Group, std::vector<const WeightPart*>> groups_;
};

}  // namespace

void fill_synthetic(const WeightPlacement& placement, WeightStore& store) {
  SyntheticFiller(placement, store).fill_groups();
}

}  // namespace ingot::executor
