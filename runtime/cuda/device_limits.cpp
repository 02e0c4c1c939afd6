#include "runtime/cuda/device_limits.hpp"

#include <fmt/format.h>

#include <array>

#include "runtime/jit/arch.hpp"

namespace ingot::cu {
namespace {

constexpr int kKiB = 1024;
constexpr int kRegisters = 65536;  // 32-bit registers of a multiprocessor: alike on all of these

// Source: CUDA 13.0 C++ Programming Guide, table "Technical Specifications per Compute Capability"
// (shared memory per block and per multiprocessor, resident threads); multiprocessors of the
// largest card: data sheets (T4, A100, RTX A6000, AGX Orin, L40S, H200, B200, B300, Thor,
// RTX PRO 6000 Blackwell, GB10).
constexpr std::array<DeviceLimits, 13> kLimits{{
    {75, 64 * kKiB, 64 * kKiB, kRegisters, 1024, 40, false},
    {80, 163 * kKiB, 164 * kKiB, kRegisters, 2048, 108, false},
    {86, 99 * kKiB, 100 * kKiB, kRegisters, 1536, 84, false},
    {87, 163 * kKiB, 164 * kKiB, kRegisters, 1536, 16, false},
    {88, 99 * kKiB, 100 * kKiB, kRegisters, 1536, 84, false},
    {89, 99 * kKiB, 100 * kKiB, kRegisters, 1536, 142, false},
    {90, 227 * kKiB, 228 * kKiB, kRegisters, 2048, 132, true},
    {100, 227 * kKiB, 228 * kKiB, kRegisters, 2048, 148, true},
    {101, 227 * kKiB, 228 * kKiB, kRegisters, 1536, 20, true},
    {103, 227 * kKiB, 228 * kKiB, kRegisters, 2048, 148, true},
    {110, 227 * kKiB, 228 * kKiB, kRegisters, 1536, 20, true},
    {120, 99 * kKiB, 100 * kKiB, kRegisters, 1536, 188, true},
    {121, 99 * kKiB, 100 * kKiB, kRegisters, 1536, 48, true},
}};

}  // namespace

DeviceLimits limits_of(const DeviceInfo& device) {
  return {.arch = device.compute_major * 10 + device.compute_minor,
          .smem_per_block_bytes = device.smem_per_block_bytes,
          .smem_per_sm_bytes = device.smem_per_sm_bytes,
          .registers_per_sm = device.registers_per_sm,
          .threads_per_sm = device.threads_per_sm,
          .sm_count = device.sm_count,
          .has_clusters = device.has_clusters};
}

Result<DeviceLimits> limits_of_arch(std::string_view arch) {
  const auto number = jit::arch_number(arch);
  for (const DeviceLimits& limits : kLimits) {
    if (number == limits.arch) return limits;
  }
  if (!number) {
    return fail(ErrorCode::invalid_argument, fmt::format("\"{}\" is no architecture", arch));
  }
  return DeviceLimits{.arch = *number,
                      .smem_per_block_bytes = 99 * kKiB,
                      .smem_per_sm_bytes = 100 * kKiB,
                      .registers_per_sm = kRegisters,
                      .threads_per_sm = 1536,
                      .sm_count = 1,
                      .has_clusters = false};
}

}  // namespace ingot::cu
