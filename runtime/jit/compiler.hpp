#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot::jit {

/// One file of device code, by the literal name that #include uses.
struct SourceFile {
  std::string name;
  std::string text;

  bool operator==(const SourceFile&) const = default;
};

/// All that a compiler sees of one kernel variant: nothing is read from the disk besides.
struct CompileJob {
  std::string name;                  ///< the unit's name in diagnostics: "rms_norm.cuh"
  std::string arch;                  ///< "sm_90a"
  std::string source;                ///< generated parameter block, then the template
  std::vector<SourceFile> headers;   ///< everything that the source includes, directly or not
  std::vector<std::string> options;  ///< canonical, without the architecture
};

/// What one kernel takes of a multiprocessor, as the assembler reported it.
struct Resources {
  int registers = 0;  ///< per thread
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int stack_bytes = 0;  ///< per thread, arrays that are indexed at run time included
  int smem_bytes = 0;   ///< static shared memory per block

  bool operator==(const Resources&) const = default;
  bool spills() const { return spill_store_bytes > 0 || spill_load_bytes > 0; }
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string log;  ///< the compiler's words, warnings included
  Resources resources;
  double seconds = 0;
};

/// Which compiler it is; both fields are part of every cubin key.
struct CompilerIdentity {
  std::string version;  ///< "13.0"
  std::string build;    ///< tells two builds of one version apart

  bool operator==(const CompilerIdentity&) const = default;
};

/// Turns source into a cubin. Implementations: NVRTC in this process, NVRTC in child processes, and
/// the fakes of tests. Any thread may call compile().
class Compiler {
 public:
  virtual ~Compiler() = default;

  virtual CompilerIdentity identity() const = 0;
  /// Errors: compile_failed (the source does not compile, or the compiler crashes on it: this job
  /// will never work; the log holds the compiler's words), unsupported (it does not know the
  /// architecture), not_found (it is missing), io (it was killed or could not be started).
  [[nodiscard]] virtual Result<CompiledKernel> compile(const CompileJob& job) = 0;
};

/// Reads "Used N registers", spills, stack and shared memory out of ptxas's verbose log. Functions
/// that were not inlined count too. Error: corrupt when the log has no such lines.
[[nodiscard]] Result<Resources> resources_in_log(const std::string& log);

}  // namespace ingot::jit
