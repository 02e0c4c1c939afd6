#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/variant.hpp"
#include "tuner/agreement.hpp"
#include "tuner/problem.hpp"

namespace ingot {

/// A candidate with its code.
struct TrialKernel {
  jit::Variant variant;
  std::vector<std::byte> cubin;
};

/// Runs the candidates of one problem at a time on a card. Lives in a child process: what it does
/// to the card is lost with it. Implemented by whoever owns the card's memory, and by fakes.
/// Every function may throw EngineError(cuda): the context is gone then, and the child with it.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;

  /// Makes inputs for the problem and forgets the one before. Returns the names of the edge cases
  /// that run() knows, most of all "largest": the bucket's own size at its longest context; and, as
  /// far as the problem has them, "unused slots", "fewer keys than top-k", "empty row", "last
  /// page". Errors: unsupported for a problem that it does not know, cuda.
  [[nodiscard]] virtual Result<std::vector<std::string>> enter(
      const std::vector<std::string>& families, const std::vector<ProblemField>& problem) = 0;

  /// Fills the outputs with the poison, runs the kernel once on an edge case and copies all outputs
  /// back. Workspaces are poisoned too, as far as the launch contract allows. Error: cuda (the
  /// launch was refused: the card lacks what the kernel needs).
  [[nodiscard]] virtual Result<std::vector<KernelOutput>> run(const TrialKernel& kernel,
                                                              std::size_t edge_case,
                                                              Poison poison) = 0;

  /// Microseconds of one launch as deployed: a node of a CUDA graph, inputs that rotate beyond L2,
  /// the bucket's longest context, with the kernels of its pair where it has such (a split's
  /// combine). Error: cuda, as above.
  [[nodiscard]] virtual Result<double> time_us(const TrialKernel& kernel) = 0;
};

/// Checks candidates of one problem against the reference variant on every edge case. Keeps the
/// reference's outputs.
class Verifier {
 public:
  explicit Verifier(TrialRunner& runner) : runner_(runner) {}

  /// Runs the reference. Errors: those of TrialRunner; corrupt where it disagrees with itself (an
  /// output that depends on what was in the buffer before).
  [[nodiscard]] Result<void> set_reference(const TrialKernel& reference,
                                           std::vector<std::string> edge_cases);

  /// nullopt: it agrees. Otherwise a sentence with the edge case, the output and the element.
  /// Errors: those of TrialRunner.
  [[nodiscard]] Result<std::optional<std::string>> check(const TrialKernel& candidate);

 private:
  Result<PoisonedRuns> runs(const TrialKernel& kernel, std::size_t edge_case);

  TrialRunner& runner_;
  std::vector<std::string> edge_cases_;
  std::vector<PoisonedRuns> expected_;  // by edge case
};

}  // namespace ingot
