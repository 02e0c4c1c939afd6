#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/jit/compiler.hpp"
#include "runtime/jit/nvrtc_api.hpp"

namespace ingot::jit {

/// The hidden subcommand by which the program runs itself as a compile worker.
inline constexpr const char* kCompileWorkerCommand = "compile-worker";

/// The arguments after the subcommand: which NVRTC the worker opens.
std::vector<std::string> compile_worker_arguments(const NvrtcFiles& nvrtc);

/// Body of the hidden subcommand: opens the NVRTC that the arguments name and compiles what comes
/// over the channel until it closes. Returns the exit status.
int run_compile_worker(const std::vector<std::string>& arguments);

/// Answers jobs on `channel` with `compiler` until the other side closes. Returns the exit status.
int serve_compiles(int channel, Compiler& compiler);

/// What a worker answers.
struct WorkerReply {
  Result<CompiledKernel> result;
  std::uint64_t resident_bytes = 0;  ///< of the worker, after the compile
};

// The frames between a pool and its workers. Decoding fails (corrupt) on anything that encoding
// does not write.
std::string encode_job(const CompileJob& job);
[[nodiscard]] Result<CompileJob> decode_job(const std::string& frame);
std::string encode_reply(const WorkerReply& reply);
[[nodiscard]] Result<WorkerReply> decode_reply(const std::string& frame);

}  // namespace ingot::jit
