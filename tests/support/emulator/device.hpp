#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

/// Runs device templates on the CPU, thread by thread, so that fragments, barriers, rings and
/// hand-overs between blocks are tested where there is no GPU. The headers under common/ here stand
/// in for the templates' own that hold PTX; the templates themselves are compiled unchanged.
///
/// Every thread of every block is a fiber; a random one of those that can run goes on until it
/// meets a barrier, an instruction of its whole warp, or a spin loop. Copies land at random later
/// times in random order. Shared memory starts as 0xff bytes, which is NaN in every format used
/// here. So a missing wait shows as a wrong result in some of the seeds. What is not modelled: the
/// weak memory order of the hardware, and time.
namespace ingot::test::emulator {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Dim3 grid;
  Dim3 block;
  std::size_t smem_bytes = 0;
  std::uint64_t seed = 0;
  Dim3 cluster = {};  ///< blocks of a cluster; divides the grid
};

/// Runs `kernel` once per thread, all blocks at the same time. Throws std::runtime_error when no
/// thread can go on (deadlock), or when lanes of a warp meet at different instructions.
void run(const Launch& launch, const std::function<void()>& kernel);

// ---- for the stand-in headers, within a running kernel

const Dim3& thread_index();
const Dim3& block_index();
const Dim3& block_size();
const Dim3& grid_size();
unsigned lane();

std::byte* shared_base();
std::uint32_t shared_address(const void* pointer);
void* shared_pointer(std::uint32_t address);

/// Lets others run; for spin loops.
void yield();
/// The same in a loop that waits for a launch on another thread of the host: no deadlock by itself.
void wait_for_others();
/// A clock.
std::uint64_t now_ns();

/// A warp-wide instruction: every lane brings `bytes` of operands; the last to arrive calls
/// `combine(operands of lane 0 … 31, results likewise)`, then all get their results.
/// `site` tells instructions apart: lanes that meet at different sites are an error.
using Combine = void (*)(const void* const* operands, void* const* results, const void* extra);
void warp_collective(const void* site, const void* operands, void* results, Combine combine,
                     const void* extra);
/// The same for the 128 threads of a warpgroup.
void warpgroup_collective(const void* site, const void* operands, void* results, Combine combine,
                          const void* extra);

/// Named barrier of `threads` threads of the block.
void sync_block(int id, int threads, bool wait);
/// The same, waiting; whether `predicate` held in any of the threads.
bool sync_block_or(int id, int threads, bool predicate);

void barrier_init(std::uint32_t barrier, int arrivals);
void barrier_expect(std::uint32_t barrier, std::uint32_t bytes);
void barrier_arrive(std::uint32_t barrier);
void barrier_wait(std::uint32_t barrier, std::uint32_t parity);

/// Bulk copy from global memory that completes on a barrier.
void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier);

// Within a cluster; `rank` counts its blocks, x fastest.
/// Bulk copy to block `rank`, from global or from this block's shared memory.
void copy_bulk_remote(std::uint32_t to, const void* from, std::uint32_t bytes,
                      std::uint32_t barrier, unsigned rank);
/// A store of one thread that completes on a barrier of block `rank`.
void store_remote(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                  unsigned rank);
void barrier_arrive_remote(std::uint32_t barrier, unsigned rank);
/// The cluster's own barrier, of all threads of its blocks that have not ended.
void arrive_cluster();
void wait_cluster();

/// Products of the calling thread's warpgroup: done as late as allowed, in wait_products. Called by
/// one thread for the group, in a collective's `combine`.
void queue_product(std::function<void()> product);
void commit_products();
void wait_products(std::size_t pending);
/// cp.async of this thread, and the arrival that follows its copies so far.
void copy_async(std::uint32_t to, const void* from, std::uint32_t bytes);
void arrive_when_copied(std::uint32_t barrier);
/// Makes this thread's copies since the last call a group. It lands at once or when it is waited
/// for, by chance: too early for who still reads the place, or too late for who does not wait.
void commit_copies();
/// Lands all but the newest `pending` groups of this thread.
void wait_copies(int pending);

}  // namespace ingot::test::emulator
