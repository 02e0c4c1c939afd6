#pragma once
// Copies of bf16 tiles of 64 columns by the threads of a producer, to shared memory as the tensor
// cores read it: lines of 128 bytes. Eight threads share a line, 16 bytes each.
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels {

// A thread's 16 bytes of every line that it copies, of a tile of LINES. The addresses stay in
// registers: a copy reads its own late, and the next one would wait for the register.
template <int LINES, int THREADS>
struct LineCopies {
  static constexpr int STEP = THREADS / 8, COUNT = LINES / STEP, LINE_BYTES = 128;
  const bf16* from[COUNT];
  int lines;  // that there are, from the thread's first on

  // @param stride  elements from line to line
  __forceinline__ LineCopies(const bf16* first, i64 stride, int lines) : lines(lines) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      from[i] = first + i * STEP * stride;
  }
  // The columns from `column` on of the lines that there are.
  // @param to  the place of the thread's 16 bytes of its first line
  __forceinline__ void copy(u32 to, int column) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (i * STEP < lines) ptx::copy16_async(to + i * (STEP * LINE_BYTES), from[i] + column);
  }
  __forceinline__ void advance(int columns) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      from[i] += columns;
  }
};

}  // namespace ingot::kernels
