// rope_kv_append on the emulator, with calls of programmatic dependent launch that are counted.
// Compiled with OVERRIDES for a latent of 1024 and NORMALIZE.
#include "tests/support/emulator/launch_order.hpp"

#include <set>
#include <utility>
#include <vector>

#include "common/kv_layout.cuh"  // which defaults of parameters name
#include "common/launch.cuh"
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/overrides.hpp"

namespace ingot::kernels {
namespace {

test::emulator::LaunchOrder order;
std::set<std::pair<unsigned, unsigned>> waited;  // block's y, thread

std::pair<unsigned, unsigned> this_thread() {
  return {blockIdx.y, threadIdx.x};
}
void counted_wait() {
  waited.insert(this_thread());
}
void counted_release() {
  ++(waited.contains(this_thread()) ? order.after_turn : order.before_turn);
}

}  // namespace
}  // namespace ingot::kernels

// The template's calls, not those that common/launch.cuh has.
#define wait_for_predecessor counted_wait
#define release_successor counted_release
#include "rope_kv_append.params.def"
#undef PARAM
#include "rope_kv_append.cuh"

namespace ingot::test::emulator {

LaunchOrder kv_append_with_latent_order(int tokens) {
  static_assert(LATENT_DIMS == 1024 && NORMALIZE);
  const auto count = static_cast<std::size_t>(tokens);
  std::vector<kernels::bf16> kv(count * kernels::KV_DIMS + 8), latent(count * 1024 + 8);
  std::vector<kernels::bf16> weight(1024 + 8);
  std::vector<float> frequencies(32, 0.5F);
  std::vector<int> positions(count), slots(count);
  for (int i = 0; i < tokens; ++i)
    slots[static_cast<std::size_t>(i)] = i;
  std::vector<kernels::u8> pool(PAGE_BYTES + 16);
  const auto aligned = [](auto& values) {
    const auto address = reinterpret_cast<std::uintptr_t>(values.data());
    return reinterpret_cast<decltype(values.data())>((address + 15) / 16 * 16);
  };
  kernels::order = {};
  kernels::waited.clear();
  const kernels::RopeKvAppendArgs args{.kv = aligned(kv),
                                       .norm_weight = aligned(weight),
                                       .frequencies = frequencies.data(),
                                       .positions = positions.data(),
                                       .slots = slots.data(),
                                       .pool = aligned(pool),
                                       .latent = aligned(latent),
                                       .latent_weight = aligned(weight),
                                       .latent_out = aligned(latent),
                                       .tokens = tokens,
                                       .kv_stride = kernels::KV_DIMS,
                                       .epsilon = 1e-6F};
  run({.grid = {1, 2}, .block = {32U * WARPS}, .seed = 1}, [&] { kernels::rope_kv_append(args); });
  LaunchOrder result = kernels::order;
  result.never_waited = 2 * 32 * WARPS - static_cast<int>(kernels::waited.size());
  return result;
}

}  // namespace ingot::test::emulator
