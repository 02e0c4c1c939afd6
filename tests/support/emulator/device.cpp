#include "tests/support/emulator/device.hpp"

#include <sanitizer/asan_interface.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/emulator/cluster.hpp"

namespace ingot::test::emulator {

namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr int kWarp = 32, kWarpgroup = 128;
// Threads that only spin, in a row, before it is called a deadlock.
constexpr std::uint64_t kIdleLimit = 2'000'000;

struct Copy {
  std::uint32_t to = 0;
  const void* from = nullptr;
  std::uint32_t bytes = 0;
};
struct PendingCopy {
  std::vector<Copy> copies;
  std::uint32_t barrier = 0;
  bool completes_bytes = false;  // else: one arrival
};
struct Barrier {
  int arrivals = 0;  // of a phase
  int missing = 0;
  std::int64_t missing_bytes = 0;
  std::uint32_t phase = 0;
  std::vector<int> waiting = {};
};
struct Block;
struct Meeting {  // of a warp or warpgroup
  const void* site = nullptr;
  int arrived = 0;
  std::vector<const void*> operands;
  std::vector<void*> results;
  std::vector<int> waiting;
};
struct NamedBarrier {
  int arrived = 0;
  bool any = false;
  std::vector<int> waiting;
};
struct Cluster {
  int alive = 0;
  int arrived = 0;
  std::int64_t phase = 0;
  std::vector<Block*> blocks;
};
/// Products that a warpgroup has started, by committed group.
struct Products {
  std::deque<std::vector<std::function<void()>>> committed;
  std::vector<std::function<void()>> open;
};
/// A thread's stack, from those of earlier launches where there is one: a launch has up to 40,000,
/// and memory that goes back each time is most of a short launch's time.
class Stack {
 public:
  Stack() {
    if (spare().empty()) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    } else {
      bytes_ = std::move(spare().back());
      spare().pop_back();
      // Its last thread never returned, so what lay between its variables is still marked.
      ASAN_UNPOISON_MEMORY_REGION(bytes_.get(), kStackBytes);
    }
  }
  Stack(Stack&&) = default;
  Stack& operator=(Stack&&) = delete;
  ~Stack() {
    if (bytes_) spare().push_back(std::move(bytes_));
  }
  std::byte* bytes() { return bytes_.get(); }

 private:
  static std::vector<std::unique_ptr<std::byte[]>>& spare() {
    thread_local std::vector<std::unique_ptr<std::byte[]>> stacks;
    return stacks;
  }
  std::unique_ptr<std::byte[]> bytes_;
};

/// Where a stack was left.
using Place = std::array<void*, 5>;

// The two are not one function, as the compiler asks for, and no sanitizer counts their calls: what
// is entered on one stack is left on another.
[[gnu::noinline, gnu::no_sanitize("address", "thread", "undefined"), noreturn]] void go_to(
    Place& to) {
  __builtin_longjmp(to.data(), 1);
}
/// Goes on at `to` until somebody goes to `from`. Unlike swapcontext, without a system call.
[[gnu::noinline, gnu::no_sanitize("address", "thread", "undefined")]] void change_to(Place& from,
                                                                                     Place& to) {
  if (__builtin_setjmp(from.data()) == 0) go_to(to);
}
/// The same to where a context begins.
[[gnu::noinline, gnu::no_sanitize("address", "thread", "undefined")]] void begin(
    Place& from, ucontext_t& context) {
  if (__builtin_setjmp(from.data()) == 0) setcontext(&context);
}

struct Fiber {
  Place place;
  std::optional<Stack> stack;  // from its first turn until it is done
  Block* block = nullptr;
  Dim3 thread;
  int rank = 0;  // in the block
  bool done = false;
  std::int64_t cluster_phase = -1;  // that the thread has arrived for
  bool vote = false;                // of the last sync_block_or
  std::vector<Copy> copies;         // cp.async since the last arrive_when_copied or commit_copies
  std::deque<std::vector<Copy>> groups;  // committed, oldest first
};
struct Block {
  Dim3 index;
  std::vector<std::byte> memory;
  std::byte* shared = nullptr;
  std::map<std::uint32_t, Barrier> barriers;
  std::map<int, NamedBarrier> named;
  std::vector<Meeting> warps, warpgroups;
  std::vector<PendingCopy> pending;
  std::vector<Products> products;  // by warpgroup
  Cluster* cluster = nullptr;
  unsigned running = 0;  // threads
};

struct Machine {
  Launch launch;
  const std::function<void()>* kernel = nullptr;
  std::mt19937_64 random;
  Place scheduler;
  ucontext_t beginning;  // of the fiber that runs for the first time
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Cluster> clusters;
  std::vector<Fiber> fibers;
  std::vector<int> ready;
  int current = -1;
  std::uint64_t idle = 0;
  std::uint64_t waits = 0;  // for other launches
  std::exception_ptr failure;

  Fiber& fiber() { return fibers[static_cast<std::size_t>(current)]; }
  void leave() { change_to(fiber().place, scheduler); }
  void go_on();
  void wake(int index) {
    ready.push_back(index);
    idle = 0;
  }
};

thread_local Machine* machine = nullptr;  // of the launch that runs on this thread

void finish_cluster_phase(Cluster& cluster) {
  if (cluster.arrived < cluster.alive) return;
  cluster.arrived = 0;
  ++cluster.phase;
  machine->idle = 0;
}

[[gnu::no_sanitize("thread")]] void enter() {
  Machine& m = *machine;
  try {
    (*m.kernel)();
  } catch (...) {
    if (!m.failure) m.failure = std::current_exception();
  }
  m.fiber().done = true;
  --m.fiber().block->running;
  Cluster& cluster = *m.fiber().block->cluster;
  --cluster.alive;
  if (m.fiber().cluster_phase == cluster.phase) --cluster.arrived;
  if (cluster.arrived > 0) finish_cluster_phase(cluster);
  m.leave();
}

void Machine::go_on() {
  Fiber& now = fiber();
  if (now.stack) {
    change_to(scheduler, now.place);
  } else {
    now.stack.emplace();
    getcontext(&beginning);
    beginning.uc_stack.ss_sp = now.stack->bytes();
    beginning.uc_stack.ss_size = kStackBytes;
    beginning.uc_link = nullptr;
    makecontext(&beginning, enter, 0);
    begin(scheduler, beginning);
  }
  if (now.done) now.stack.reset();
}

void finish_phase(Barrier& barrier) {
  if (barrier.missing > 0 || barrier.missing_bytes != 0) return;
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  machine->idle = 0;
  for (const int index : barrier.waiting)
    machine->wake(index);
  barrier.waiting.clear();
}
Barrier& barrier_at(Block& block, std::uint32_t address) {
  const auto found = block.barriers.find(address);
  if (found == block.barriers.end())
    throw std::runtime_error("a barrier is used before its set-up");
  return found->second;
}

void land(Block& block, std::size_t index) {
  const PendingCopy copy = std::move(block.pending[index]);
  block.pending.erase(block.pending.begin() + static_cast<std::ptrdiff_t>(index));
  std::int64_t bytes = 0;
  for (const Copy& part : copy.copies) {
    std::memcpy(block.shared + part.to, part.from, part.bytes);
    bytes += part.bytes;
  }
  Barrier& barrier = barrier_at(block, copy.barrier);
  if (copy.completes_bytes)
    barrier.missing_bytes -= bytes;
  else
    --barrier.missing;
  finish_phase(barrier);
  machine->idle = 0;
}

void meet(Meeting& meeting, int members, int place, const void* site, const void* operands,
          void* results, Combine combine, const void* extra) {
  Machine& m = *machine;
  if (meeting.arrived == 0) {
    meeting.site = site;
    meeting.operands.assign(static_cast<std::size_t>(members), nullptr);
    meeting.results.assign(static_cast<std::size_t>(members), nullptr);
  } else if (meeting.site != site) {
    throw std::runtime_error("lanes of a warp meet at different instructions");
  }
  meeting.operands[static_cast<std::size_t>(place)] = operands;
  meeting.results[static_cast<std::size_t>(place)] = results;
  if (++meeting.arrived < members) {
    meeting.waiting.push_back(m.current);
    m.leave();
    return;
  }
  combine(meeting.operands.data(), meeting.results.data(), extra);
  meeting.arrived = 0;
  for (const int index : meeting.waiting)
    m.wake(index);
  meeting.waiting.clear();
}

}  // namespace

void run(const Launch& launch, const std::function<void()>& kernel) {
  Machine m;
  m.launch = launch;
  m.kernel = &kernel;
  m.random.seed(launch.seed);
  machine = &m;
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  const std::size_t blocks =
      static_cast<std::size_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  m.fibers = std::vector<Fiber>(blocks * threads);
  const Dim3& size = launch.cluster;
  m.clusters.resize(blocks / (size.x * size.y * size.z));
  std::size_t next = 0;
  for (unsigned z = 0; z < launch.grid.z; ++z)
    for (unsigned y = 0; y < launch.grid.y; ++y)
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        auto block = std::make_unique<Block>();
        block->index = {x, y, z};
        block->memory.assign(launch.smem_bytes + 1024, std::byte{0xff});
        const auto address = reinterpret_cast<std::uintptr_t>(block->memory.data());
        block->shared = block->memory.data() + (1024 - address % 1024) % 1024;
        block->warps.resize((threads + kWarp - 1) / kWarp);
        block->warpgroups.resize((threads + kWarpgroup - 1) / kWarpgroup);
        block->products.resize(block->warpgroups.size());
        block->cluster = &m.clusters[(z / size.z * (launch.grid.y / size.y) + y / size.y) *
                                         (launch.grid.x / size.x) +
                                     x / size.x];
        block->cluster->blocks.push_back(block.get());
        block->cluster->alive += static_cast<int>(threads);
        block->running = threads;
        for (unsigned t = 0; t < threads; ++t, ++next) {
          Fiber& fiber = m.fibers[next];
          fiber.block = block.get();
          fiber.rank = static_cast<int>(t);
          fiber.thread = {t % launch.block.x, t / launch.block.x % launch.block.y,
                          t / (launch.block.x * launch.block.y)};
          m.ready.push_back(static_cast<int>(next));
        }
        m.blocks.push_back(std::move(block));
      }

  std::size_t running = m.fibers.size();
  while (running > 0 && !m.failure) {
    if (m.random() % 16 == 0 || m.ready.empty()) {
      Block& block = *m.blocks[m.random() % m.blocks.size()];
      if (!block.pending.empty()) land(block, m.random() % block.pending.size());
    }
    if (++m.idle > kIdleLimit) {
      m.failure = std::make_exception_ptr(std::runtime_error("deadlock: no thread can go on"));
      break;
    }
    if (m.ready.empty()) continue;
    const std::size_t pick = m.random() % m.ready.size();
    m.current = m.ready[pick];
    m.ready[pick] = m.ready.back();
    m.ready.pop_back();
    m.go_on();
    if (m.fiber().done) {
      --running;
      m.idle = 0;
    }
  }
  if (!m.failure)
    for (const auto& block : m.blocks)
      if (!block->pending.empty())
        m.failure =
            std::make_exception_ptr(std::runtime_error("a block ended before its copies landed"));
  machine = nullptr;
  if (m.failure) std::rethrow_exception(m.failure);
}

const Dim3& thread_index() {
  return machine->fiber().thread;
}
const Dim3& block_index() {
  return machine->fiber().block->index;
}
const Dim3& block_size() {
  return machine->launch.block;
}
const Dim3& grid_size() {
  return machine->launch.grid;
}
unsigned lane() {
  return static_cast<unsigned>(machine->fiber().rank % kWarp);
}
std::byte* shared_base() {
  return machine->fiber().block->shared;
}
std::uint32_t shared_address(const void* pointer) {
  const std::ptrdiff_t offset = static_cast<const std::byte*>(pointer) - shared_base();
  if (offset < 0 || offset > static_cast<std::ptrdiff_t>(machine->launch.smem_bytes))
    throw std::runtime_error("not an address in shared memory");
  return static_cast<std::uint32_t>(offset);
}
void* shared_pointer(std::uint32_t address) {
  if (address >= machine->launch.smem_bytes)
    throw std::runtime_error("an address past the end of shared memory");
  return shared_base() + address;
}

void yield() {
  Machine& m = *machine;
  m.ready.push_back(m.current);
  m.leave();
}

void wait_for_others() {
  machine->idle = 0;
  constexpr std::uint64_t kTurns = 64;  // of threads that all wait, between two rests
  if (++machine->waits % kTurns == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  yield();
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void warp_collective(const void* site, const void* operands, void* results, Combine combine,
                     const void* extra) {
  Fiber& fiber = machine->fiber();
  meet(fiber.block->warps[static_cast<std::size_t>(fiber.rank / kWarp)], kWarp, fiber.rank % kWarp,
       site, operands, results, combine, extra);
}
void warpgroup_collective(const void* site, const void* operands, void* results, Combine combine,
                          const void* extra) {
  Fiber& fiber = machine->fiber();
  meet(fiber.block->warpgroups[static_cast<std::size_t>(fiber.rank / kWarpgroup)], kWarpgroup,
       fiber.rank % kWarpgroup, site, operands, results, combine, extra);
}

namespace {

void sync_named(int id, int threads, bool wait, bool predicate) {
  Machine& m = *machine;
  NamedBarrier& barrier = m.fiber().block->named[id];
  ++barrier.arrived;
  barrier.any |= predicate;
  if (barrier.arrived < threads) {
    if (!wait) return;
    barrier.waiting.push_back(m.current);
    m.leave();
    return;
  }
  m.fiber().vote = barrier.any;
  for (const int index : barrier.waiting) {
    m.fibers[static_cast<std::size_t>(index)].vote = barrier.any;
    m.wake(index);
  }
  barrier = {};
}

}  // namespace

void sync_block(int id, int threads, bool wait) {
  sync_named(id, threads, wait, false);
}
bool sync_block_or(int id, int threads, bool predicate) {
  sync_named(id, threads, true, predicate);
  return machine->fiber().vote;
}

void barrier_init(std::uint32_t barrier, int arrivals) {
  (void)shared_pointer(barrier);
  machine->fiber().block->barriers[barrier] = {arrivals, arrivals, 0, 0, {}};
}
void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  barrier_at(*machine->fiber().block, barrier).missing_bytes += bytes;
}
void barrier_arrive(std::uint32_t barrier) {
  Barrier& b = barrier_at(*machine->fiber().block, barrier);
  if (--b.missing < 0) throw std::runtime_error("more arrivals than a barrier expects");
  finish_phase(b);
}
void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  Machine& m = *machine;
  Block& block = *m.fiber().block;
  while (true) {
    Barrier& b = barrier_at(block, barrier);
    if ((b.phase & 1) != parity) return;
    b.waiting.push_back(m.current);
    m.leave();
  }
}

void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  if (to % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    throw std::runtime_error("a bulk copy is not in whole 16-byte words");
  (void)shared_pointer(to + bytes - 1);
  machine->fiber().block->pending.push_back({{{to, from, bytes}}, barrier, true});
}

namespace {

Block& block_of_cluster(unsigned rank) {
  return *machine->fiber().block->cluster->blocks.at(rank);
}
/// The same block: its shared memory goes with its last thread.
Block& living(Block& block) {
  if (block.running == 0) throw std::runtime_error("a block of the cluster has ended");
  return block;
}

}  // namespace

void copy_bulk_remote(std::uint32_t to, const void* from, std::uint32_t bytes,
                      std::uint32_t barrier, unsigned rank) {
  if (to % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    throw std::runtime_error("a bulk copy is not in whole 16-byte words");
  (void)shared_pointer(to + bytes - 1);
  block_of_cluster(rank).pending.push_back({{{to, from, bytes}}, barrier, true});
}
void store_remote(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                  unsigned rank) {
  if (to % bytes != 0) throw std::runtime_error("a remote store is not aligned to its size");
  (void)shared_pointer(to + bytes - 1);
  Block& block = living(block_of_cluster(rank));
  std::memcpy(block.shared + to, from, bytes);
  Barrier& b = barrier_at(block, barrier);
  b.missing_bytes -= bytes;
  finish_phase(b);
}
void barrier_arrive_remote(std::uint32_t barrier, unsigned rank) {
  Barrier& b = barrier_at(block_of_cluster(rank), barrier);
  if (--b.missing < 0) throw std::runtime_error("more arrivals than a barrier expects");
  finish_phase(b);
}
void barrier_expect_remote(std::uint32_t barrier, std::uint32_t bytes, unsigned rank) {
  barrier_at(block_of_cluster(rank), barrier).missing_bytes += bytes;
}
void load_remote(void* to, std::uint32_t from, std::uint32_t bytes, unsigned rank) {
  if (from % bytes != 0) throw std::runtime_error("a remote load is not aligned to its size");
  (void)shared_pointer(from + bytes - 1);
  std::memcpy(to, living(block_of_cluster(rank)).shared + from, bytes);
}
void arrive_cluster() {
  Cluster& cluster = *machine->fiber().block->cluster;
  machine->fiber().cluster_phase = cluster.phase;
  ++cluster.arrived;
  finish_cluster_phase(cluster);
}
void wait_cluster() {
  const Cluster& cluster = *machine->fiber().block->cluster;
  while (cluster.phase == machine->fiber().cluster_phase)
    yield();
}

namespace {

Products& my_products() {
  const Fiber& fiber = machine->fiber();
  return fiber.block->products[static_cast<std::size_t>(fiber.rank / kWarpgroup)];
}

}  // namespace

void queue_product(std::function<void()> product) {
  my_products().open.push_back(std::move(product));
}
void commit_products() {
  Products& products = my_products();
  products.committed.push_back(std::move(products.open));
  products.open.clear();
}
void wait_products(std::size_t pending) {
  Products& products = my_products();
  while (products.committed.size() > pending) {
    for (const auto& product : products.committed.front())
      product();
    products.committed.pop_front();
  }
}

void copy_async(std::uint32_t to, const void* from, std::uint32_t bytes) {
  if (to % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    throw std::runtime_error("an asynchronous copy is not aligned to its size");
  (void)shared_pointer(to + bytes - 1);
  machine->fiber().copies.push_back({to, from, bytes});
}
void arrive_when_copied(std::uint32_t barrier) {
  Fiber& fiber = machine->fiber();
  fiber.block->pending.push_back({std::move(fiber.copies), barrier, false});
  fiber.copies.clear();
}

namespace {

void land_group(Fiber& fiber, std::vector<Copy>& group) {
  for (const Copy& copy : group)
    std::memcpy(fiber.block->shared + copy.to, copy.from, copy.bytes);
  group.clear();
}

}  // namespace

void commit_copies() {
  Fiber& fiber = machine->fiber();
  fiber.groups.push_back(std::move(fiber.copies));
  fiber.copies.clear();
  if (machine->random() % 2 == 0) land_group(fiber, fiber.groups.back());
}
void wait_copies(int pending) {
  Fiber& fiber = machine->fiber();
  while (std::ssize(fiber.groups) > pending) {
    land_group(fiber, fiber.groups.front());
    fiber.groups.pop_front();
  }
}

}  // namespace ingot::test::emulator
