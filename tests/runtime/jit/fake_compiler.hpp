#pragma once

#include <atomic>
#include <functional>

#include "runtime/jit/compiler.hpp"

namespace ingot::test {

/// Made-up cubins, at once: bytes that depend on everything the job holds, resources that depend on
/// its length. Words in the source make it misbehave:
///   FAIL does not compile, SPILL compiles with spills, CRASH ends the process by SIGSEGV,
///   KILLED by SIGKILL, INTERRUPTED by SIGINT, HANG never answers.
class FakeCompiler : public jit::Compiler {
 public:
  explicit FakeCompiler(jit::CompilerIdentity identity = {"13.0", "fake"})
      : identity_(std::move(identity)) {}

  jit::CompilerIdentity identity() const override { return identity_; }
  [[nodiscard]] Result<jit::CompiledKernel> compile(const jit::CompileJob& job) override;

  int compiles() const { return compiles_; }
  /// Called at the start of every compile.
  std::function<void()> before = [] {};

 private:
  jit::CompilerIdentity identity_;
  std::atomic<int> compiles_ = 0;
};

/// What FakeCompiler makes of `job`.
std::vector<std::byte> fake_cubin(const jit::CompileJob& job);

}  // namespace ingot::test
