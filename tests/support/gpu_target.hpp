#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// The first GPU.
class GpuTarget : public KernelTarget {
 public:
  /// nullopt, after skip() said why, where there is no GPU.
  static std::optional<GpuTarget> open_or_skip() {
    auto driver = driver_or_skip(1);
    if (!driver) return std::nullopt;
    return GpuTarget(cu::Context::retain(std::move(driver), 0));
  }

  cu::DeviceLimits limits() const override { return cu::limits_of(context_.device()); }
  void* place(std::span<const std::byte> bytes) override {
    buffers_.push_back(
        cu::DeviceBuffer::allocate(context_, std::max<std::size_t>(bytes.size(), 1)));
    if (!bytes.empty()) buffers_.back().copy_from_host(stream_, bytes);
    stream_.synchronize();
    return buffers_.back().as<void>();
  }
  void fetch(const void* from, std::span<std::byte> to) override {
    for (const cu::DeviceBuffer& buffer : buffers_) {
      if (buffer.as<void>() != from) continue;
      std::vector<std::byte> all(buffer.bytes());
      buffer.copy_to_host(stream_, all);
      stream_.synchronize();
      std::copy_n(all.begin(), to.size(), to.begin());
      return;
    }
    throw std::logic_error("fetch of what was not placed");
  }
  void prepare(const std::vector<jit::Variant>& variants) override {
    auto loaded = load_variants(context_, variants);
    for (std::size_t i = 0; i < variants.size(); ++i)
      kernels_.push_back({variants[i], std::move(loaded[i])});
  }
  void run(const jit::Variant& variant, const cu::LaunchShape& shape, const void* args) override {
    for (const auto& [known, kernel] : kernels_) {
      if (!(known == variant)) continue;
      cu::launch(stream_, kernel.function(), shape, args);
      stream_.synchronize();
      return;
    }
    throw std::logic_error("not prepared: " + jit::describe(variant));
  }
  /// Prepares every candidate of the family for a problem on this card, or the ends of its axes.
  template <class Family>
  std::vector<typename Family::Params> prepare_all(const typename Family::Problem& problem,
                                                   bool extremes = false) {
    const auto space = Family::space(problem, limits());
    auto chosen = extremes ? space.extremes() : space.candidates();
    std::vector<jit::Variant> erased;
    for (const auto& params : chosen)
      erased.push_back(variant_of<Family>(params));
    prepare(erased);
    return chosen;
  }
  /// Frees what was placed and prepared.
  void clear() {
    buffers_.clear();
    kernels_.clear();
  }

 private:
  explicit GpuTarget(cu::Context context)
      : context_(std::move(context)), stream_(cu::Stream::create(context_)) {}

  cu::Context context_;
  cu::Stream stream_;
  std::vector<cu::DeviceBuffer> buffers_;
  std::vector<std::pair<jit::Variant, jit::Kernel>> kernels_;
};

}  // namespace ingot::test
