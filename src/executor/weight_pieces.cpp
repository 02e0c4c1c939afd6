#include "src/executor/weight_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernel_templates/fp8_weight_tiles.hpp"
#include "kernel_templates/moe_decode.args.h"
#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/reference/rope.hpp"
#include "src/weights/open_checkpoint.hpp"

namespace ingot::executor {
namespace {

/// "layers.3.ffn.experts.0.w1.weight" -> "layers.3.ffn.experts."
std::string experts_prefix(const WeightPart& part) {
  constexpr std::string_view kFirst = "0.w1.weight";
  return part.tensor.name.substr(0, part.tensor.name.size() - kFirst.size());
}

const TensorView& find_tensor(const Checkpoint& checkpoint, const std::string& name,
                              std::int64_t bytes) {
  const TensorView& tensor = checkpoint.tensor(name);
  if (static_cast<std::int64_t>(tensor.bytes.size()) == bytes) return tensor;
  throw EngineError(
      ErrorCode::corrupt,
      fmt::format("loading tensor {} of {}: it has {} bytes, and config.json implies {}; fetch "
                  "both of one model",
                  in_quotes(name), checkpoint.shards()[tensor.shard].path.string(),
                  tensor.bytes.size(), bytes));
}

std::int64_t stored_bytes(const TensorSpec& spec) {
  std::int64_t bytes = dtype_bytes(spec.dtype);
  for (const std::int64_t size : spec.shape)
    bytes *= size;
  return bytes;
}

std::int64_t stored_columns(const TensorSpec& spec) {
  return spec.shape.size() > 1 ? spec.shape[1] : 1;
}

/// Throws what check_values() has to say of a tensor.
void refuse(const Checkpoint& checkpoint, const ModelConfig& config, const TensorView& tensor,
            TensorKind kind) {
  TensorSpec spec;
  spec.name = std::string(tensor.name);
  spec.kind = kind;
  value_or_throw(check_values(tensor, spec, config, checkpoint.shards()[tensor.shard].path.string(),
                              ValueChecks::loading));
}

/// The first byte of a piece's rows and columns in the stored tensor.
const std::byte* first_byte(const WeightPiece& piece, const TensorView& tensor) {
  const WeightPart& part = *piece.part;
  const std::int64_t element =
      (part.range.row_begin + piece.row_begin) * stored_columns(part.tensor) +
      part.range.column_begin;
  return tensor.bytes.data() + element * dtype_bytes(part.tensor.dtype);
}

void copy_rows(const WeightPiece& piece, const TensorView& tensor, std::span<std::byte> out) {
  const WeightPart& part = *piece.part;
  const std::byte* from = first_byte(piece, tensor);
  if (part.range.columns() == stored_columns(part.tensor)) {
    std::memcpy(out.data(), from, out.size());
    return;
  }
  const auto row_bytes = static_cast<std::size_t>(part.strip_bytes());
  const std::int64_t stride = stored_columns(part.tensor) * dtype_bytes(part.tensor.dtype);
  for (std::size_t at = 0; at < out.size(); at += row_bytes, from += stride)
    std::memcpy(out.data() + at, from, row_bytes);
}

/// Whether all ids are experts.
bool narrow_ids(const std::byte* ids, std::uint64_t experts, std::span<std::byte> out) {
  bool valid = true;
  for (std::size_t i = 0; i < out.size() / sizeof(std::uint16_t); ++i) {
    std::uint64_t id = 0;  // a negative one is a large one
    std::memcpy(&id, ids + i * sizeof(id), sizeof(id));
    valid &= id < experts;
    const auto narrow = static_cast<std::uint16_t>(id);
    std::memcpy(out.data() + i * sizeof(narrow), &narrow, sizeof(narrow));
  }
  return valid;
}

/// The piece's rows of an expert's matrix.
kernels::Fp4Matrix fp4_rows(const WeightPiece& piece, const TensorView& codes,
                            const TensorView& scales) {
  constexpr std::int64_t kCodesPerScale = 16;  // bytes
  const std::int64_t code_stride = stored_columns(piece.part->tensor);
  const std::int64_t scale_stride = code_stride / kCodesPerScale;
  const std::int64_t row = piece.part->range.row_begin + piece.row_begin;
  return {.codes = first_byte(piece, codes),
          .scales = scales.bytes.data() + row * scale_stride +
                    piece.part->range.column_begin / kCodesPerScale,
          .code_stride = code_stride,
          .scale_stride = scale_stride};
}

void make_jobs(const Checkpoint& checkpoint, const ModelConfig& config, const WeightPiece& piece,
               const std::vector<const TensorView*>& tensors, std::span<std::byte> out) {
  const auto rows = static_cast<int>(piece.row_end - piece.row_begin);
  const auto columns = static_cast<int>(2 * piece.part->range.columns());
  const kernels::Fp4Matrix first = fp4_rows(piece, *tensors[0], *tensors[1]);
  try {
    if (piece.part->layout == WeightLayout::gate_up_jobs) {
      // Rows past the expert's own are zeros.
      const int stored =
          std::clamp(static_cast<int>(piece.part->range.rows() - piece.row_begin), 0, rows);
      const auto packed = out.first(kernels::moe_tile_bytes(2 * stored, columns));
      if (stored > 0) {
        kernels::pack_moe_gate_up(first, fp4_rows(piece, *tensors[2], *tensors[3]), stored, columns,
                                  packed);
      }
      std::ranges::fill(out.subspan(packed.size()), std::byte{0});
    } else if (columns == kernels::moe_width(columns)) {
      kernels::pack_moe_down(first, rows, columns, out);
    } else {
      // Columns past the expert's own are zeros, strip by strip.
      std::ranges::fill(out, std::byte{0});
      const auto strip_bytes = static_cast<std::size_t>(piece.part->strip_bytes());
      kernels::Fp4Matrix strip = first;
      for (std::size_t at = 0; at < out.size(); at += strip_bytes) {
        kernels::pack_moe_down(
            strip, kernels::MOE_JOB_ROWS, columns,
            out.subspan(at, kernels::moe_tile_bytes(kernels::MOE_JOB_ROWS, columns)));
        strip.codes += kernels::MOE_JOB_ROWS * strip.code_stride;
        strip.scales += kernels::MOE_JOB_ROWS * strip.scale_stride;
      }
    }
  } catch (const EngineError& error) {
    for (std::size_t i = 1; i < tensors.size(); i += 2)
      refuse(checkpoint, config, *tensors[i], TensorKind::group_scale);
    throw EngineError(
        error.error().code,
        fmt::format("loading expert {} ({} …) of {}: {}", piece.expert, in_quotes(tensors[0]->name),
                    checkpoint.shards()[tensors[0]->shard].path.string(), error.error().message));
  }
}

void add_pieces(const WeightPart& part, std::size_t most_bytes, std::vector<WeightPiece>& pieces) {
  const std::uint64_t strip_bytes = part.strip_bytes();
  const std::int64_t strips =
      part.layout == WeightLayout::frequencies ? 1 : part.placed_rows() / part.strip_rows();
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(most_bytes / strip_bytes, 1));
  std::uint64_t offset = part.offset;
  for (int expert = 0; expert < part.experts; ++expert) {
    for (std::int64_t strip = 0; strip < strips; strip += step) {
      const std::int64_t end = std::min(strip + step, strips);
      const std::uint64_t bytes = static_cast<std::uint64_t>(end - strip) * strip_bytes;
      pieces.push_back({&part, expert, strip * part.strip_rows(), end * part.strip_rows(), offset,
                        static_cast<std::size_t>(bytes)});
      offset += bytes;
    }
  }
}

}  // namespace

std::vector<WeightPiece> weight_pieces(const WeightPlacement& placement, std::size_t most_bytes) {
  std::vector<WeightPiece> pieces;
  for (const WeightPart& part : placement.parts)
    add_pieces(part, most_bytes, pieces);
  return pieces;
}

std::vector<const TensorView*> piece_tensors(const Checkpoint& checkpoint,
                                             const WeightPiece& piece) {
  const WeightPart& part = *piece.part;
  const std::int64_t bytes = stored_bytes(part.tensor);
  switch (part.layout) {
    case WeightLayout::frequencies:
      return {};
    case WeightLayout::rows:
    case WeightLayout::fp8_tiles:
    case WeightLayout::token_experts:
      return {&find_tensor(checkpoint, part.tensor.name, bytes)};
    case WeightLayout::gate_up_jobs:
    case WeightLayout::down_jobs:
      break;
  }
  std::vector<const TensorView*> tensors;
  const std::string prefix = experts_prefix(part);
  const auto add = [&](std::string_view matrix) {
    tensors.push_back(&find_tensor(
        checkpoint, fmt::format("{}{}.{}.weight", prefix, piece.expert, matrix), bytes));
    tensors.push_back(&find_tensor(
        checkpoint, fmt::format("{}{}.{}.scale", prefix, piece.expert, matrix), bytes / 16));
  };
  if (part.layout == WeightLayout::gate_up_jobs) {
    add("w1");
    add("w3");
  } else {
    add("w2");
  }
  return tensors;
}

void read_ahead(const Checkpoint& checkpoint, const WeightPiece& piece) {
  for (const TensorView* tensor : piece_tensors(checkpoint, piece)) {
    // Scales have a row for each row of theirs, or are a part of their own.
    const std::size_t row_bytes =
        tensor->bytes.size() / static_cast<std::size_t>(piece.part->tensor.shape[0]);
    TensorView rows = *tensor;
    rows.bytes = tensor->bytes.subspan(
        row_bytes * static_cast<std::size_t>(piece.part->range.row_begin + piece.row_begin),
        row_bytes * static_cast<std::size_t>(piece.row_end - piece.row_begin));
    checkpoint.will_need(rows);
  }
}

void make_piece(const Checkpoint& checkpoint, const ModelConfig& config, const WeightPiece& piece,
                std::span<std::byte> out) {
  const WeightPart& part = *piece.part;
  const std::vector<const TensorView*> tensors = piece_tensors(checkpoint, piece);
  switch (part.layout) {
    case WeightLayout::frequencies: {
      const std::vector<float> made = reference::rope_frequencies(config, part.ratio);
      std::memcpy(out.data(), made.data(), out.size());
      return;
    }
    case WeightLayout::rows:
      copy_rows(piece, *tensors[0], out);
      if (part.tensor.kind == TensorKind::block_scale &&
          std::memchr(out.data(), 255, out.size()) != nullptr)
        refuse(checkpoint, config, *tensors[0], part.tensor.kind);
      // What was just copied lies in a cache: looking at it costs little beside that.
      if (must_be_finite(part.tensor) && !all_finite(out, part.tensor.dtype))
        refuse(checkpoint, config, *tensors[0], part.tensor.kind);
      return;
    case WeightLayout::fp8_tiles:
      kernels::pack_fp8_tiles(first_byte(piece, *tensors[0]), stored_columns(part.tensor),
                              static_cast<int>(piece.row_end - piece.row_begin),
                              static_cast<int>(part.range.columns()), out);
      return;
    case WeightLayout::token_experts:
      if (!narrow_ids(first_byte(piece, *tensors[0]),
                      static_cast<std::uint64_t>(config.num_experts), out))
        refuse(checkpoint, config, *tensors[0], part.tensor.kind);
      return;
    case WeightLayout::gate_up_jobs:
    case WeightLayout::down_jobs:
      make_jobs(checkpoint, config, piece, tensors, out);
      return;
  }
}

}  // namespace ingot::executor
