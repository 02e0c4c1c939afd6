#include "tests/runtime/jit/fake_compiler.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "runtime/base/hash.hpp"
#include "runtime/jit/compile_worker.hpp"

namespace ingot::test {

std::vector<std::byte> fake_cubin(const jit::CompileJob& job) {
  const std::string text =
      "\x7f"
      "ELF" +
      digest_of(jit::encode_job(job)).hex() + std::string(500, 'c') + job.source;
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Result<jit::CompiledKernel> FakeCompiler::compile(const jit::CompileJob& job) {
  ++compiles_;
  before();
  const auto says = [&](const char* word) { return job.source.find(word) != std::string::npos; };
  if (says("CRASH")) {
    std::fputs("free(): invalid pointer\n", stderr);
    ::raise(SIGSEGV);
  }
  if (says("KILLED")) ::raise(SIGKILL);
  if (says("INTERRUPTED")) ::raise(SIGINT);
  while (says("HANG"))
    ::pause();
  if (says("FAIL")) {
    return tl::unexpected(
        Error{ErrorCode::compile_failed, "compiling " + job.name + ": no", "line 1: no\n"});
  }
  return jit::CompiledKernel{
      .cubin = fake_cubin(job),
      .log = "ptxas info    : Used 32 registers, 0 bytes smem\n",
      .resources = {.registers = 32, .spill_store_bytes = says("SPILL") ? 8 : 0},
      .seconds = 0.001};
}

}  // namespace ingot::test
