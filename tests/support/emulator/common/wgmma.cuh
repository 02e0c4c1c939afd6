#pragma once
#include "common/fp8.cuh"
#include "common/ptx.cuh"

namespace ingot::kernels::wgmma {

constexpr u32 kStep32 = 32 >> 4;
inline u32 tile_place(u32 address) {
  if (address % 1024 != 0) throw std::runtime_error("a tile is not aligned to its swizzle");
  return address >> 4;
}
inline u64 tile_descriptor(u32 place) {
  return place;
}
// An element of a tile of 128-byte lines; `column` counts from this k-step on.
inline float element(u64 descriptor, int line, int column) {
  const u32 plain = (static_cast<u32>(descriptor) << 4) + static_cast<u32>(line * 128 + column);
  return fp8::value_of(
      *static_cast<const u8*>(test::emulator::shared_pointer(plain ^ ((plain >> 7 & 7) << 4))));
}

inline void fence() {}
inline void hold(float&) {}
inline void hold(u32&) {}
inline void fresh(float&) {}

// D of all threads (+)= A[64 x K] * B[N x K]^T, both by rows.
template <int N, int K, class Operands>
void add_products(const std::vector<Operands>& threads, const std::vector<float>& a,
                  const std::vector<float>& b) {
  for (int thread = 0; thread < 128; ++thread) {
    float* const d = threads[static_cast<std::size_t>(thread)].d;
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float sum = 0;  // of few products: the order does not show in a bf16 result
      for (int k = 0; k < K; ++k)
        sum +=
            a[static_cast<std::size_t>(row * K + k)] * b[static_cast<std::size_t>(column * K + k)];
      d[i] = threads[0].accumulate != 0 ? d[i] + sum : sum;
    }
  }
}

// The rows of an operand whose elements are `element_of(row, k)`.
template <int ROWS, int K, class ElementOf>
std::vector<float> rows_of(ElementOf element_of) {
  std::vector<float> rows;
  for (int row = 0; row < ROWS; ++row)
    for (int k = 0; k < K; ++k)
      rows.push_back(element_of(row, k));
  return rows;
}

// The rows of A that lies in the registers of 128 threads, PER_WORD elements `value(word, i)` each.
template <int K, int PER_WORD, class Operands, class Value>
std::vector<float> rows_of_registers(const std::vector<Operands>& threads, Value value) {
  std::vector<float> rows(64 * K);
  for (int thread = 0; thread < 128; ++thread) {
    const u32* const words = threads[static_cast<std::size_t>(thread)].a;
    for (int word = 0; word < 4; ++word)
      for (int i = 0; i < PER_WORD; ++i)
        rows[static_cast<std::size_t>((thread / 32 * 16 + thread % 32 / 4 + word % 2 * 8) * K +
                                      thread % 4 * PER_WORD + i + word / 2 * (K / 2))] =
            value(words[word], i);
  }
  return rows;
}

// Queues what MULTIPLY does with the operands of all threads, each of which calls it with its own.
template <class Operands, void (*MULTIPLY)(const std::vector<Operands>&)>
void queue_products(const Operands& own) {
  static constexpr char kKind = 0;  // its address tells one mma from another
  test::emulator::warpgroup_collective(
      &kKind, &own, nullptr,
      [](const void* const* all, void* const*, const void*) {
        std::vector<Operands> threads;
        for (int i = 0; i < 128; ++i)
          threads.push_back(*static_cast<const Operands*>(all[i]));
        for (const Operands& o : threads)
          if (!o.agrees_with(threads[0]))
            throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
        test::emulator::queue_product([threads = std::move(threads)] { MULTIPLY(threads); });
      },
      nullptr);
}

// What a thread brings: where its part of D is, and the operands.
struct Operands {
  float* d;
  u64 a, b;
  int accumulate;
  bool agrees_with(const Operands& other) const {
    return a == other.a && b == other.b && accumulate == other.accumulate;
  }
};
// The same with A in registers, which are read when the product is waited for, as the hardware may.
struct RegisterOperands {
  float* d;
  const u32* a;
  u64 b;
  int accumulate;
  bool agrees_with(const RegisterOperands& other) const {
    return b == other.b && accumulate == other.accumulate;
  }
};

template <int N>
void multiply(const std::vector<Operands>& threads) {
  add_products<N, 32>(
      threads, rows_of<64, 32>([&](int row, int k) { return element(threads[0].a, row, k); }),
      rows_of<N, 32>([&](int row, int k) { return element(threads[0].b, row, k); }));
}

template <int N>
void mma_e4m3(float (&d)[N / 8][4], u64 a, u64 b, int accumulate) {
  queue_products<Operands, multiply<N>>({&d[0][0], a, b, accumulate});
}

inline constexpr char kCommit = 0, kWait = 0;

inline void commit() {
  test::emulator::warpgroup_collective(
      &kCommit, nullptr, nullptr,
      [](const void* const*, void* const*, const void*) { test::emulator::commit_products(); },
      nullptr);
}
template <int PENDING>
void wait() {
  static constexpr std::size_t kPending = PENDING;
  test::emulator::warpgroup_collective(
      &kWait, nullptr, nullptr,
      [](const void* const*, void* const*, const void* pending) {
        test::emulator::wait_products(*static_cast<const std::size_t*>(pending));
      },
      &kPending);
}

}  // namespace ingot::kernels::wgmma
