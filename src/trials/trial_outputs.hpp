#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/pinned_buffer.hpp"
#include "src/executor/step_program.hpp"
#include "src/trials/edge_cases.hpp"
#include "tuner/agreement.hpp"

namespace ingot::trials {

/// Some bytes of device memory.
struct Stretch {
  cu::CUdeviceptr at = 0;
  std::uint64_t bytes = 0;
};

/// Pinned memory that grows when more is asked for. The context is current.
class PinnedBytes {
 public:
  explicit PinnedBytes(const cu::Context& context) : context_(context) {}
  std::span<std::byte> room_for(std::size_t bytes);

 private:
  const cu::Context& context_;
  cu::PinnedBuffer buffer_;
};

/// What one launch writes in one edge case, and how it is brought into a form that can be compared.
/// The addresses must lie in device memory of the context in which the stream is.
class TrialOutputs {
 public:
  /// @param csa, hca  which pages are whose
  TrialOutputs(const std::vector<executor::StepOutput>& outputs, const EdgeCase& edge_case,
               const PageShare& csa, const PageShare& hca);

  /// What the launch finds there and changes, less what lies inside `restored`: it must be kept
  /// before the launch and brought back behind it.
  std::vector<Stretch> kept(const Stretch& restored) const;
  /// Fills everything that the launch writes without reading it.
  void poison(const cu::Stream& stream, Poison poison) const;
  /// Copies all back by way of `host`, waiting for the stream, and decodes it.
  std::vector<KernelOutput> fetch(const cu::Stream& stream, Poison poison, PinnedBytes& host) const;

 private:
  struct Entry {
    std::size_t page = 0;  ///< index of its stretch
    int place = 0;         ///< in the page
  };
  struct Output {
    executor::StepOutput form;
    std::vector<Stretch> stretches;  ///< of a pool: the pages that the rows touch
    std::vector<Entry> entries;      ///< of a pool: those that the launch writes
  };
  static void add_pages(Output& output, const EdgeCase& edge_case, const PageShare& csa,
                        const PageShare& hca);

  std::vector<Output> outputs_;
};

}  // namespace ingot::trials
