#include "src/bench/card_rates.hpp"

#include <algorithm>

#include "kernel_templates/matrix_rate.space.hpp"
#include "kernel_templates/memory_read.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "runtime/jit/param_block.hpp"

namespace ingot {
namespace {

constexpr std::int64_t kChunk = kernels::MEMORY_READ_CHUNK;

class RateBench {
 public:
  RateBench(const cu::Context& context, jit::KernelStore& kernels, const std::string& arch,
            const RatePolicy& policy)
      : context_(context),
        kernels_(kernels),
        arch_(arch),
        policy_(policy),
        limits_(cu::limits_of(context.device())),
        stream_(cu::Stream::create(context)),
        arena_(cu::DeviceBuffer::allocate(context, policy.arena_bytes)),
        sink_(cu::DeviceBuffer::allocate(context, 256)) {
    arena_.fill_bytes(stream_, 0x5a);
  }

  std::vector<ColdRead> reads() {
    std::vector<std::int64_t> sizes = policy_.read_bytes;
    if (sizes.empty()) {
      for (const int chunks : {4, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288})
        sizes.push_back(chunks * kChunk);
    }
    std::vector<ColdRead> curve;
    for (const std::int64_t bytes : sizes)
      curve.push_back({.bytes = static_cast<double>(bytes), .us = best_read_us(bytes)});
    return curve;
  }

  double empty_node_us() { return best_read_us(0); }

  /// The best candidate's operations a microsecond.
  double matrix_rate(bool fp8) {
    using kernels::MatrixRate;
    double best = 0;
    for (const auto& params : MatrixRate::space({.fp8 = fp8}, limits_).candidates()) {
      const jit::Kernel kernel = load<MatrixRate>(params);
      const auto shape = MatrixRate::launch_shape({.fp8 = fp8}, params, limits_);
      const kernels::MatrixRateArgs args{.sink = sink_.as<kernels::u32>(),
                                         .rounds = policy_.matrix_rounds};
      const cu::Graph graph =
          record_nodes(stream_, 1, [&](int) { kernel.launch(stream_, shape, args); });
      const double us = measure(context_, stream_, graph, policy_.measure).median_us;
      best = std::max(best, MatrixRate::operations(params, shape, policy_.matrix_rounds) / us);
    }
    return best;
  }

 private:
  template <class Family>
  jit::Kernel load(const typename Family::Params& params) {
    const jit::Variant variant{std::string(Family::kStem), jit::param_values(params)};
    const auto entry =
        value_or_throw(kernels_.get({.variant = variant, .arch = arch_, .allow_spills = true}));
    return jit::Kernel::load(context_, entry->kernel.cubin, variant.family);
  }

  /// Nodes read one place after the other of the whole arena, so that L2 holds none of them.
  double best_read_us(std::int64_t bytes) {
    using kernels::MemoryRead;
    const auto arena = static_cast<std::int64_t>(policy_.arena_bytes);
    const std::int64_t places = std::max<std::int64_t>(arena / std::max(bytes, kChunk), 1);
    const int nodes = static_cast<int>(std::min<std::int64_t>(places, policy_.most_nodes));
    const std::int64_t step = arena / nodes / kChunk * kChunk;
    double best = 0;
    for (const auto& params : MemoryRead::space({.bytes = bytes}, limits_).candidates()) {
      const jit::Kernel kernel = load<MemoryRead>(params);
      auto shape = MemoryRead::launch_shape({.bytes = bytes}, params, limits_);
      shape.programmatic = false;
      const cu::Graph graph = record_nodes(stream_, nodes, [&](int node) {
        const kernels::MemoryReadArgs args{.from = arena_.as<kernels::u8>() + node * step,
                                           .bytes = bytes,
                                           .sink = sink_.as<kernels::u32>()};
        kernel.launch(stream_, shape, args);
      });
      const double us = measure(context_, stream_, graph, policy_.measure).median_us;
      if (best == 0 || us < best) best = us;
    }
    return best;
  }

  const cu::Context& context_;
  jit::KernelStore& kernels_;
  const std::string& arch_;
  const RatePolicy& policy_;
  const cu::DeviceLimits limits_;
  cu::Stream stream_;
  cu::DeviceBuffer arena_, sink_;
};

}  // namespace

double CardRates::bytes_per_us() const {
  const ColdRead& a = reads[reads.size() - 2];
  const ColdRead& b = reads.back();
  return (b.bytes - a.bytes) / (b.us - a.us);
}

CardRates measure_card_rates(const cu::Context& context, jit::KernelStore& kernels,
                             const std::string& arch, const RatePolicy& policy) {
  RateBench bench(context, kernels, arch, policy);
  CardRates rates;
  rates.reads = bench.reads();
  rates.empty_node_us = bench.empty_node_us();
  rates.f16_per_us = bench.matrix_rate(false);
  rates.fp8_per_us = std::max(bench.matrix_rate(true), rates.f16_per_us);
  return rates;
}

}  // namespace ingot
