#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The layout in which moe_decode reads experts: jobs of 32 rows x 128 columns, 2,048 bytes of
/// codes and 128 scales, in the order in which a warp's lanes feed them to the mma. See
/// moe_job.cuh.
namespace ingot::kernels {

/// A range of a stored e2m1 matrix, such as a rank's share of an expert. Never owns.
struct Fp4Matrix {
  const std::byte* codes = nullptr;   ///< of the first element: two per byte, low nibble first
  const std::byte* scales = nullptr;  ///< of the first element: ue8m0, one per row and 32 columns
  std::ptrdiff_t code_stride = 0;     ///< bytes from row to row
  std::ptrdiff_t scale_stride = 0;
};

/// The intermediate size for which moe_decode has kernels and that holds `inter` columns of a rank:
/// what is narrower is filled up by zeros, which change nothing.
constexpr int moe_width(int inter) {
  int width = 256;
  while (width < inter)
    width *= 2;
  return width;
}

/// Bytes of `rows` x `cols` elements as jobs.
constexpr std::size_t moe_tile_bytes(int rows, int cols) {
  return static_cast<std::size_t>(rows / 32) * static_cast<std::size_t>(cols / 128) * 2176;
}

/// Gate and up of one expert: strips of 16 rows of each (8 of gate, 8 of up, twice), each strip's
/// jobs by ascending columns.
/// @param gate, up  [inter, hidden], multiples of 16 and 128
/// @param jobs      moe_tile_bytes(2 * inter, hidden)
/// Scales keep all their bits. Throws EngineError: invalid_argument for other sizes, corrupt for a
/// NaN scale (255), unsupported for a scale of 2^-127 (0) whose codes are not all zero.
void pack_moe_gate_up(const Fp4Matrix& gate, const Fp4Matrix& up, int inter, int hidden,
                      std::span<std::byte> jobs);

/// Down of one expert: strips of 32 rows, each strip's jobs by ascending columns.
/// @param down  [hidden, inter], multiples of 32 and 128
/// @param jobs  moe_tile_bytes(hidden, inter)
void pack_moe_down(const Fp4Matrix& down, int hidden, int inter, std::span<std::byte> jobs);

/// The e2m1 code of an element of a job, and the scale byte of its row and group of 32 columns.
std::uint8_t moe_job_code(const std::byte* job, int row, int col);
std::uint8_t moe_job_scale(const std::byte* job, int row, int group);

}  // namespace ingot::kernels
