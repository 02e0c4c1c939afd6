#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/nvrtc_api.hpp"

namespace ingot::jit {

/// Compiles in child processes: a crash of the compiler costs one variant, its memory goes when the
/// child is replaced, and children run side by side (NVRTC compiles one program at a time within a
/// process). compile() blocks while `jobs` compiles are running; call it from as many threads.
class CompilePool : public Compiler {
 public:
  struct Options {
    std::vector<std::string> worker_command;  ///< a program that ends in serve_compiles()
    int jobs = 1;                             ///< children at a time
    int compiles_per_worker = 256;            ///< then the child is replaced
    std::uint64_t worker_bytes = std::uint64_t{1} << 30;  ///< resident; above it is replaced
    std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< of one compile
  };
  struct Stats {
    int started = 0;                        ///< workers
    int crashed = 0;                        ///< workers that ended before they answered
    std::uint64_t most_resident_bytes = 0;  ///< of a single worker
    std::uint64_t resident_bytes = 0;       ///< of the worker that answered last
  };

  CompilePool(CompilerIdentity identity, Options options);
  /// This program run again (/proc/self/exe) with the hidden subcommand.
  static std::vector<std::string> worker_command(const NvrtcFiles& files);
  /// A pool of such workers.
  static CompilePool with_nvrtc(const NvrtcFiles& files, int jobs);

  CompilerIdentity identity() const override { return identity_; }
  [[nodiscard]] Result<CompiledKernel> compile(const CompileJob& job) override;
  Stats stats() const;
  int jobs() const { return options_.jobs; }

 private:
  struct Worker {
    Subprocess process;
    int compiles = 0;
  };

  [[nodiscard]] Result<Worker> acquire();
  void give_back(std::optional<Worker> worker);
  /// One attempt; an empty optional means that the worker was killed from outside.
  std::optional<Result<CompiledKernel>> attempt(const CompileJob& job);
  Error crash_error(const CompileJob& job, const Subprocess::End& end,
                    const std::string& output) const;

  const CompilerIdentity identity_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Worker> idle_;
  int busy_ = 0;
  Stats stats_;
};

}  // namespace ingot::jit
