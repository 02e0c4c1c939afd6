#pragma once

#include <span>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "src/executor/step_program.hpp"

namespace ingot::executor {

/// The templates with a stamp of the clock in every kernel, for StepTrace. Their kernels have cache
/// keys of their own.
jit::SourceTree traced_templates(const jit::SourceTree& templates);

/// When each launch of a step began its work, read from the card's clock by the launches themselves
/// in the graph as it is deployed. What lies between two neighbours is the time that the first adds
/// to the step: the critical path, kernel by kernel. Launches that run beside others are not on it;
/// nor are seen those of a kernel that does so elsewhere, whose time the launch before them has.
class StepTrace {
 public:
  /// The program's kernels run on `stream`, which outlives this.
  StepTrace(const cu::Context& context, const cu::Stream& stream);
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;
  ~StepTrace();

  /// Points the program's kernels here, for as long as this lives. False if one of them was not
  /// made of traced_templates(); then nothing is traced.
  bool attach(const StepProgram& program);
  /// Forgets all stamps.
  void clear();
  /// The launches that are traced, as indices of the program's.
  std::span<const std::size_t> launches() const { return launches_; }
  /// Mean time from each traced launch's start to the next one's, us, over the steps since clear();
  /// the last launch's is missing. Waits for the stream. Empty unless whole steps were stamped.
  std::vector<double> read() const;

 private:
  void point_at(cu::CUdeviceptr address) const;

  const cu::Stream& stream_;
  cu::DeviceBuffer memory_;
  std::vector<cu::CUdeviceptr> places_;  // of the kernels' pointers
  std::vector<std::size_t> launches_;
};

}  // namespace ingot::executor
