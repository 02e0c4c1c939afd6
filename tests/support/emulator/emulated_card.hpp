#pragma once

#include <filesystem>
#include <memory>

#include "runtime/jit/compiler.hpp"
#include "tests/support/host_card.hpp"

namespace ingot::test {

/// "Compiles" a kernel for the emulator: its template, with the variant's parameters, by the
/// compiler of C++ into a shared object, which is the cubin. The program must export its
/// symbols, and the source tree must be there.
class EmulatorCompiler : public jit::Compiler {
 public:
  /// @param folder   where the shared objects lie
  /// @param overlay  templates, and what they include, that are taken instead of the tree's
  EmulatorCompiler(std::filesystem::path source_root, std::filesystem::path folder,
                   std::filesystem::path overlay = {})
      : source_root_(std::move(source_root)),
        folder_(std::move(folder)),
        overlay_(std::move(overlay)) {}

  jit::CompilerIdentity identity() const override { return {"0.0", "emulator"}; }
  Result<jit::CompiledKernel> compile(const jit::CompileJob& job) override;

 private:
  std::filesystem::path source_root_, folder_, overlay_;
};

/// A HostCard::Run.
void run_on_emulator(const cu::CUlaunchConfig& config, void* kernel, const void* arguments);

/// A Hopper card in the host's memory whose kernels run on the emulator.
std::unique_ptr<HostCard> emulated_card(std::uint64_t memory_bytes, int multiprocessors);

}  // namespace ingot::test
