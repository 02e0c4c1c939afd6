#include "runtime/jit/compile_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/jit/compile_worker.hpp"

namespace ingot::jit {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 == 0: the only line
}

}  // namespace

CompilePool::CompilePool(CompilerIdentity identity, Options options)
    : identity_(std::move(identity)), options_(std::move(options)) {}

std::vector<std::string> CompilePool::worker_command(const NvrtcFiles& files) {
  std::vector<std::string> command{"/proc/self/exe", kCompileWorkerCommand};
  for (auto& argument : compile_worker_arguments(files))
    command.push_back(std::move(argument));
  return command;
}

CompilePool CompilePool::with_nvrtc(const NvrtcFiles& files, int jobs) {
  return CompilePool({files.version, files.build},
                     {.worker_command = worker_command(files), .jobs = std::max(1, jobs)});
}

Result<CompilePool::Worker> CompilePool::acquire() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ < options_.jobs; });
  ++busy_;
  if (!idle_.empty()) {
    Worker worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  ++stats_.started;
  lock.unlock();
  auto process = Subprocess::spawn(options_.worker_command);
  if (!process) {
    give_back(std::nullopt);
    return tl::unexpected(process.error());
  }
  return Worker{.process = std::move(*process)};
}

void CompilePool::give_back(std::optional<Worker> worker) {
  {
    const std::lock_guard lock(mutex_);
    --busy_;
    if (worker) idle_.push_back(std::move(*worker));
  }
  changed_.notify_one();
}

Error CompilePool::crash_error(const CompileJob& job, const Subprocess::End& end,
                               const std::string& output) const {
  const std::string said = last_line(output);
  return {ErrorCode::compile_failed,
          fmt::format("compiling {} for {}: the compiler crashed: {}{}{}", job.name, job.arch,
                      end.describe(), said.empty() ? "" : "; it said: ", said),
          output};
}

std::optional<Result<CompiledKernel>> CompilePool::attempt(const CompileJob& job) {
  auto worker = acquire();
  if (!worker) return tl::unexpected(worker.error());
  std::string frame;
  FrameStatus status = FrameStatus::closed;
  if (write_frame(worker->process.channel(), encode_job(job))) {
    status = read_frame(worker->process.channel(), frame, options_.timeout);
  }
  if (status == FrameStatus::timed_out) {
    worker->process.kill();
    (void)worker->process.wait();
    give_back(std::nullopt);
    return fail(
        ErrorCode::compile_failed,
        fmt::format("compiling {} for {}: no result after {} seconds; the compiler was "
                    "stopped",
                    job.name, job.arch, std::chrono::duration<double>(options_.timeout).count()));
  }
  if (status == FrameStatus::closed) {
    const Subprocess::End end = worker->process.wait();
    const std::string output = worker->process.output_tail();
    {
      const std::lock_guard lock(mutex_);
      ++stats_.crashed;
    }
    give_back(std::nullopt);
    if (end.was_killed()) return std::nullopt;
    return tl::unexpected(crash_error(job, end, output));
  }
  auto reply = decode_reply(frame);
  if (!reply) {
    give_back(std::nullopt);
    return tl::unexpected(reply.error());
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.resident_bytes = reply->resident_bytes;
    stats_.most_resident_bytes = std::max(stats_.most_resident_bytes, reply->resident_bytes);
  }
  const bool worn = ++worker->compiles >= options_.compiles_per_worker ||
                    reply->resident_bytes > options_.worker_bytes;
  if (worn) {
    (void)worker->process.wait();  // its channel is closed: it ends by itself
    give_back(std::nullopt);
  } else {
    give_back(std::move(*worker));
  }
  return std::move(reply->result);
}

Result<CompiledKernel> CompilePool::compile(const CompileJob& job) {
  // A worker that was killed from outside (by a person, or for memory) says nothing about the job:
  // once more, then an error that bars nothing.
  constexpr int kAttempts = 2;
  for (int i = 0; i < kAttempts; ++i) {
    if (auto result = attempt(job)) return std::move(*result);
  }
  return fail(ErrorCode::io,
              fmt::format("compiling {} for {}: the compiler was killed twice; if memory is short, "
                          "use fewer --jobs",
                          job.name, job.arch));
}

CompilePool::Stats CompilePool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace ingot::jit
