// One variant of compress_kv on the emulator. Compiled once per variant with VARIANT (its name) and
// OVERRIDES, and with `kernels` and the kernel's name renamed, so that variants live side by side.
#include "tests/support/emulator/compress_kv_variants.hpp"
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/overrides.hpp"

#include "compress_kv.params.def"
#undef PARAM
#include "compress_kv.cuh"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {
namespace {

void launch_variant(const CompressData& data, const CompressStep& step, CompressMemory& memory,
                    std::uint64_t seed) {
  kernels::CompressKvArgs args{};
  args.k = step.k.data();
  args.s = step.s.data();
  args.ape = data.ape.data();
  args.norm_weight = reinterpret_cast<const kernels::bf16*>(data.norm.data());
  args.frequencies = data.frequencies.data();
  args.row_starts = step.row_starts.data();
  args.positions = step.positions.data();
  args.slots = step.slots.data();
  args.page_table = data.page_table.data();
  args.pool = memory.pool.data();
  args.state = memory.state.data();
  args.row_stride = step.row_stride;
  args.page_stride = step.page_stride;
  args.epsilon = 1e-6F;
  const Launch launch{{static_cast<unsigned>(kernels::compress_kv_shares(step.most_tokens, RATIO)),
                       static_cast<unsigned>(step.sequences)},
                      {static_cast<unsigned>(kernels::THREADS)},
                      sizeof(kernels::SharedStorage),
                      seed};
  emulator::run(launch, [&] { kernels::compress_kv(args); });
}

}  // namespace

CompressKvVariant VARIANT() {
  return {STRING(VARIANT),
          {RATIO, INDEX_KEYS, STATE_ROWS, PAGE_ENTRIES, PAGE_BYTES, ENTRY_STRIDE, SCALES_BESIDE},
          launch_variant};
}

}  // namespace ingot::test::emulator
