#include "kernel_templates/moe_weight_tiles.hpp"

#include <fmt/format.h>

#include <cstring>

#include "kernel_templates/moe_decode.args.h"
#include "runtime/base/error.hpp"

namespace ingot::kernels {
namespace {

constexpr int kRows = MOE_JOB_ROWS, kCols = MOE_JOB_COLS;
static_assert(moe_tile_bytes(kRows, kCols) == MOE_JOB_BYTES);

/// Where code `i` of eight neighbouring ones lies in its word: bit of the magnitude, bit of the
/// sign. A mask finds codes 0 and 1 in the upper bytes of both halves as f16 numbers, 2 and 3 in
/// the lower ones, and 4 to 7 behind them.
struct Place {
  int magnitude, sign;
};
constexpr Place place_of(int i) {
  constexpr int kByte[4] = {1, 3, 0, 2};
  const int bit = 8 * kByte[i % 4];
  return i < 4 ? Place{bit + 1, bit + 7} : Place{bit + 4, bit};
}

/// Codes 0 to 3 of four nibbles, each in the byte that place_of() names.
constexpr std::uint32_t spread(std::uint32_t nibbles) {
  return (nibbles & 0xf) << 8 | (nibbles & 0xf0) << 20 | (nibbles >> 8 & 0xf) |
         (nibbles & 0xf000) << 4;
}
/// Eight stored codes, at their places. Shifts and masks alone, so that compilers do several words
/// at a time.
constexpr std::uint32_t pack_word(std::uint32_t codes) {
  const std::uint32_t first = spread(codes), second = spread(codes >> 16);
  return (first & 0x07070707) << 1 | (first & 0x08080808) << 4 | (second & 0x07070707) << 4 |
         (second & 0x08080808) >> 3;
}
constexpr bool packs_as_placed() {
  for (int i = 0; i < 8; ++i)
    for (std::uint32_t code = 0; code < 16; ++code) {
      const Place place = place_of(i);
      if (pack_word(code << (4 * i)) != ((code & 7) << place.magnitude | (code >> 3) << place.sign))
        return false;
    }
  return true;
}
static_assert(packs_as_placed());

constexpr std::size_t kRowWords = kCols / 8;
void pack_row(const std::byte* codes, std::uint32_t* words) {
  std::uint32_t stored[kRowWords];
  std::memcpy(stored, codes, sizeof stored);
  for (std::size_t i = 0; i < kRowWords; ++i)
    words[i] = pack_word(stored[i]);
}

/// A row's four scale bytes: the first on the exponent field of a float, the others 8, 16 and 24
/// bits lower, turned around the end of the word.
std::uint32_t pack_scales(const std::byte* scales) {
  const auto at = [&](int i) { return std::to_integer<std::uint32_t>(scales[i]); };
  return at(0) << 23 | at(1) << 15 | at(2) << 7 | at(3) >> 1 | (at(3) & 1) << 31;
}

/// Refuses scales that the kernel does not multiply with exactly.
void check_scales(const std::byte* codes, const std::byte* scales) {
  for (int group = 0; group < kCols / 32; ++group) {
    const auto scale = std::to_integer<int>(scales[group]);
    if (scale == 255)
      throw EngineError(ErrorCode::corrupt, "packing an FP4 expert: a scale byte is 255, NaN");
    if (scale != 0) continue;
    std::uint64_t under_scale[2];
    std::memcpy(under_scale, codes + group * 16, sizeof under_scale);
    if (((under_scale[0] | under_scale[1]) & 0x7777777777777777) != 0)
      throw EngineError(ErrorCode::unsupported,
                        "packing an FP4 expert: a scale is 2^-127 (byte 0) where weights are not "
                        "zero: the kernels take scales from 2^-126 on");
  }
}

/// @param row_of  (row of the job) -> codes and scales of its 128 columns
/// @param ahead   bytes from a row's codes to those of the same row of the next strip. Rows lie too
///                far apart for the processor to see the pattern: asking a strip ahead takes the
///                memory's latency out of the packing.
template <class RowOf>
void pack_job(const RowOf& row_of, std::ptrdiff_t ahead, std::byte* job) {
  for (int first = 0; first < kRows; first += 16) {
    for (int g = 0; g < 8; ++g) {
      std::uint32_t words[2][kRowWords];  // of rows g and g + 8, which a lane holds side by side
      std::uint32_t scale_words[2];
      for (const int lower : {0, 1}) {
        const auto [codes, scales] = row_of(first + g + 8 * lower);
        __builtin_prefetch(codes + ahead, 0, 2);
        check_scales(codes, scales);
        pack_row(codes, words[lower]);
        scale_words[lower] = pack_scales(scales);
      }
      for (std::size_t half = 0; half < kRowWords; half += kRowWords / 2) {
        std::byte* lanes = job + first * 64 + half * 64 + g * 64;
        for (std::size_t lane = 0; lane < 4; ++lane)
          for (const std::size_t word : {0, 1, 2, 3}) {
            std::memcpy(lanes, &words[word % 2][half + word / 2 * 4 + lane], 4);
            lanes += 4;
          }
      }
      std::memcpy(job + MOE_JOB_CODE_BYTES + first * 4 + g * 8, scale_words, sizeof scale_words);
    }
  }
}

void check_sizes(int rows, int row_multiple, int cols, std::size_t bytes, std::size_t wanted) {
  if (rows > 0 && cols > 0 && rows % row_multiple == 0 && cols % kCols == 0 && bytes == wanted)
    return;
  throw EngineError(ErrorCode::invalid_argument,
                    fmt::format("packing an FP4 expert of {} x {} into {} bytes: rows must be a "
                                "multiple of {}, columns of {}, and the jobs take {} bytes",
                                rows, cols, bytes, row_multiple, kCols, wanted));
}

struct Row {
  const std::byte* codes;
  const std::byte* scales;
};
Row row_at(const Fp4Matrix& matrix, int row, int col) {
  return {matrix.codes + row * matrix.code_stride + col / 2,
          matrix.scales + row * matrix.scale_stride + col / 32};
}

}  // namespace

void pack_moe_gate_up(const Fp4Matrix& gate, const Fp4Matrix& up, int inter, int hidden,
                      std::span<std::byte> jobs) {
  check_sizes(inter, kRows / 2, hidden, jobs.size(), moe_tile_bytes(2 * inter, hidden));
  std::byte* job = jobs.data();
  for (int strip = 0; strip < inter; strip += kRows / 2)
    for (int col = 0; col < hidden; col += kCols, job += MOE_JOB_BYTES)
      pack_job(
          [&](int row) {
            return row_at(row / 8 % 2 == 0 ? gate : up, strip + row / 16 * 8 + row % 8, col);
          },
          kRows / 2 * gate.code_stride, job);
}

void pack_moe_down(const Fp4Matrix& down, int hidden, int inter, std::span<std::byte> jobs) {
  check_sizes(hidden, kRows, inter, jobs.size(), moe_tile_bytes(hidden, inter));
  std::byte* job = jobs.data();
  for (int strip = 0; strip < hidden; strip += kRows)
    for (int col = 0; col < inter; col += kCols, job += MOE_JOB_BYTES)
      pack_job([&](int row) { return row_at(down, strip + row, col); }, kRows * down.code_stride,
               job);
}

std::uint8_t moe_job_code(const std::byte* job, int row, int col) {
  const int lane = row % 8 * 4 + col / 8 % 4, word = col / 32 % 2 * 2 + row / 8 % 2;
  std::uint32_t packed = 0;
  std::memcpy(&packed, job + row / 16 * 1024 + col / 64 * 512 + lane * 16 + word * 4, 4);
  const Place place = place_of(col % 8);
  return static_cast<std::uint8_t>((packed >> place.magnitude & 7) | (packed >> place.sign & 1)
                                                                         << 3);
}

std::uint8_t moe_job_scale(const std::byte* job, int row, int group) {
  std::uint32_t packed = 0;
  std::memcpy(&packed, job + MOE_JOB_CODE_BYTES + row / 16 * 64 + row % 8 * 8 + row / 8 % 2 * 4, 4);
  const std::uint32_t exponent = group == 3 ? packed << 24 | packed >> 8 : packed << (8 * group);
  return static_cast<std::uint8_t>(exponent >> 23 & 0xff);
}

}  // namespace ingot::kernels
