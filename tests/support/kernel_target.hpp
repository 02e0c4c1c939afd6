#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::test {

/// Where a kernel runs in a test: on a GPU, or on the CPU's emulator. What is checked is written
/// once, against this.
class KernelTarget {
 public:
  virtual ~KernelTarget() = default;

  virtual cu::DeviceLimits limits() const = 0;
  /// A copy of the bytes that kernels can reach, 256-byte aligned; lives as long as the target.
  virtual void* place(std::span<const std::byte> bytes) = 0;
  virtual void fetch(const void* from, std::span<std::byte> to) = 0;
  /// Compiles what will be run, side by side. Throws where the target has no such variant.
  virtual void prepare(const std::vector<jit::Variant>& variants) = 0;
  /// Runs a prepared variant and waits. `args` is the family's argument struct.
  virtual void run(const jit::Variant& variant, const cu::LaunchShape& shape, const void* args) = 0;

  template <class To, class T>
  To* place_as(const std::vector<T>& values) {
    static_assert(sizeof(To) == sizeof(T));
    return static_cast<To*>(place(std::as_bytes(std::span(values))));
  }
  template <class T>
  std::vector<T> fetch_as(const void* from, std::size_t count) {
    std::vector<T> values(count);
    fetch(from, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

template <class Family>
jit::Variant variant_of(const typename Family::Params& params) {
  return {std::string(Family::kStem), jit::param_values(params)};
}

}  // namespace ingot::test
