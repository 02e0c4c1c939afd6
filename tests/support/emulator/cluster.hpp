#pragma once

#include <cstdint>

/// More for the stand-in headers, within a running kernel: between the blocks of a cluster.
namespace ingot::test::emulator {

/// Announces bytes to a barrier of block `rank`, without an arrival.
void barrier_expect_remote(std::uint32_t barrier, std::uint32_t bytes, unsigned rank);
/// A load of one thread from the shared memory of block `rank`, which must not have ended.
void load_remote(void* to, std::uint32_t from, std::uint32_t bytes, unsigned rank);

}  // namespace ingot::test::emulator
