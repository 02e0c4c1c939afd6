#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <stdexcept>

#include "runtime/base/error.hpp"
#include "tests/support/emulator/kernel_variants.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// The emulator, posing as the card of an architecture, with few multiprocessors.
class EmulatedTarget : public KernelTarget {
 public:
  explicit EmulatedTarget(std::uint64_t seed = 1, int sm_count = 8)
      : limits_(value_or_throw(cu::limits_of_arch("sm_90a"))), seed_(seed) {
    limits_.sm_count = sm_count;
  }

  cu::DeviceLimits limits() const override { return limits_; }
  void* place(std::span<const std::byte> bytes) override {
    // Ends where the bytes end, so that an address sanitizer sees a read past them.
    blocks_.emplace_back(static_cast<std::byte*>(
        ::operator new(std::max<std::size_t>(bytes.size(), 1), std::align_val_t(256))));
    std::copy(bytes.begin(), bytes.end(), blocks_.back().get());
    return blocks_.back().get();
  }
  void fetch(const void* from, std::span<std::byte> to) override {
    std::copy_n(static_cast<const std::byte*>(from), to.size(), to.begin());
  }
  void prepare(const std::vector<jit::Variant>& variants) override {
    for (const jit::Variant& variant : variants)
      (void)find(variant);
  }
  void run(const jit::Variant& variant, const cu::LaunchShape& shape, const void* args) override {
    const auto dim = [](const cu::Dim3& d) { return emulator::Dim3{d.x, d.y, d.z}; };
    find(variant).run(
        {dim(shape.grid), dim(shape.block), shape.smem_bytes, seed_, dim(shape.cluster)}, args);
  }

 private:
  struct Free {
    void operator()(std::byte* block) const { ::operator delete(block, std::align_val_t(256)); }
  };

  const emulator::KernelVariant& find(const jit::Variant& variant) const {
    const auto found =
        std::find_if(variants_.begin(), variants_.end(), [&](const emulator::KernelVariant& v) {
          return v.family == variant.family &&
                 std::equal(v.params.begin(), v.params.end(), variant.params.begin(),
                            variant.params.end(), [](const auto& a, const jit::ParamValue& b) {
                              return a.first == b.name && a.second == b.value;
                            });
        });
    if (found == variants_.end())
      throw std::logic_error("not compiled for the emulator: " + jit::describe(variant));
    return *found;
  }

  std::vector<emulator::KernelVariant> variants_ = emulator::kernel_variants();
  cu::DeviceLimits limits_;
  std::uint64_t seed_;
  std::deque<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace ingot::test
