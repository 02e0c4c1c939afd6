#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"

namespace ingot {

/// One output buffer of a kernel after a run, copied to the host.
struct KernelOutput {
  std::string name;           ///< as the family's Args calls it: "lse"
  Dtype dtype = Dtype::f32;   ///< f32 and bf16 are compared as numbers, others to the bit
  double tolerance = 0;       ///< share of an element, and of the whole output's root mean square,
                              ///< by which an element may differ; 0: to the bit
  double norm_tolerance = 0;  ///< share of its Euclidean norm by which the whole may; 0: any
  std::vector<std::byte> bytes;
};

/// Outputs are filled with one byte value before a run. An element that comes back with the
/// poison's bytes from both runs was not written.
enum class Poison : unsigned char {
  nan = 0xff,   ///< a NaN as f32 and as bf16; -1 as an integer
  huge = 0x5a,  ///< 1.5e16 as f32 and as bf16
};

/// The outputs of one kernel on one input, once for each poison.
struct PoisonedRuns {
  std::vector<KernelOutput> nan;
  std::vector<KernelOutput> huge;
};

/// Whether a candidate's outputs agree with the reference's: the same elements written, NaN and
/// infinities in the same places, every other element within the reference output's tolerance, and
/// nothing that depends on what was in the buffer before. Pure.
/// Returns the first disagreement as a sentence, nullopt where there is none.
std::optional<std::string> disagreement(const PoisonedRuns& reference,
                                        const PoisonedRuns& candidate);

}  // namespace ingot
