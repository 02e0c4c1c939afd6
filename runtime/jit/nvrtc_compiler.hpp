#pragma once

#include <memory>

#include "runtime/jit/compiler.hpp"
#include "runtime/jit/nvrtc_api.hpp"

namespace ingot::jit {

/// NVRTC in this process. A crash of NVRTC takes the process along and its memory only grows: the
/// product compiles in child processes (CompilePool); this is what they run.
class NvrtcCompiler : public Compiler {
 public:
  explicit NvrtcCompiler(std::shared_ptr<const NvrtcApi> nvrtc) : nvrtc_(std::move(nvrtc)) {}

  CompilerIdentity identity() const override;
  [[nodiscard]] Result<CompiledKernel> compile(const CompileJob& job) override;

 private:
  std::shared_ptr<const NvrtcApi> nvrtc_;
};

}  // namespace ingot::jit
