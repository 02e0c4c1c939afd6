#include "runtime/jit/compile_worker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <fstream>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/subprocess.hpp"
#include "runtime/jit/nvrtc_compiler.hpp"

namespace ingot::jit {
namespace {

constexpr std::size_t kArguments = 4;

/// Answers every job with the reason why there is no compiler.
class NoCompiler : public Compiler {
 public:
  explicit NoCompiler(Error error) : error_(std::move(error)) {}
  CompilerIdentity identity() const override { return {}; }
  Result<CompiledKernel> compile(const CompileJob&) override { return tl::unexpected(error_); }

 private:
  Error error_;
};

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> as_bytes(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

std::string encode_job(const CompileJob& job) {
  ByteWriter out;
  out.text(job.name);
  out.text(job.arch);
  out.text(job.source);
  out.u64(job.headers.size());
  for (const SourceFile& header : job.headers) {
    out.text(header.name);
    out.text(header.text);
  }
  out.u64(job.options.size());
  for (const std::string& option : job.options)
    out.text(option);
  return out.take();
}

Result<CompileJob> decode_job(const std::string& frame) {
  ByteReader in(frame);
  CompileJob job;
  job.name = in.text();
  job.arch = in.text();
  job.source = in.text();
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    std::string name(in.text());
    job.headers.push_back({std::move(name), std::string(in.text())});
  }
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    job.options.emplace_back(in.text());
  }
  if (!in.done()) return fail(ErrorCode::corrupt, "a compile job's frame is malformed");
  return job;
}

std::string encode_reply(const WorkerReply& reply) {
  ByteWriter out;
  out.u64(reply.resident_bytes);
  out.u64(reply.result ? 1 : 0);
  if (reply.result) {
    const CompiledKernel& kernel = *reply.result;
    out.text(as_text(kernel.cubin));
    out.text(kernel.log);
    const Resources& used = kernel.resources;
    for (const int number : {used.registers, used.spill_store_bytes, used.spill_load_bytes,
                             used.stack_bytes, used.smem_bytes}) {
      out.u64(static_cast<std::uint64_t>(number));
    }
    out.u64(std::bit_cast<std::uint64_t>(kernel.seconds));
  } else {
    const Error& error = reply.result.error();
    out.u64(static_cast<std::uint64_t>(error.code));
    out.text(error.message);
    out.text(error.log);
  }
  return out.take();
}

Result<WorkerReply> decode_reply(const std::string& frame) {
  ByteReader in(frame);
  const std::uint64_t resident = in.u64();
  const bool compiled = in.u64() == 1;
  WorkerReply reply{.result = CompiledKernel{}, .resident_bytes = resident};
  if (compiled) {
    CompiledKernel& kernel = *reply.result;
    kernel.cubin = as_bytes(in.text());
    kernel.log = in.text();
    Resources& used = kernel.resources;
    for (int* number : {&used.registers, &used.spill_store_bytes, &used.spill_load_bytes,
                        &used.stack_bytes, &used.smem_bytes}) {
      *number = static_cast<int>(in.u64());
    }
    kernel.seconds = std::bit_cast<double>(in.u64());
  } else {
    const auto code = static_cast<ErrorCode>(in.u64());
    std::string message(in.text());
    reply.result = tl::unexpected(Error{code, std::move(message), std::string(in.text())});
  }
  if (!in.done()) return fail(ErrorCode::corrupt, "a compile worker's frame is malformed");
  return reply;
}

std::vector<std::string> compile_worker_arguments(const NvrtcFiles& nvrtc) {
  return {nvrtc.library.string(), nvrtc.builtins.string(), nvrtc.version, nvrtc.build};
}

int serve_compiles(int channel, Compiler& compiler) {
  std::string frame;
  while (read_frame(channel, frame) == FrameStatus::ok) {
    const auto job = decode_job(frame);
    WorkerReply reply{.result = job ? compiler.compile(*job) : tl::unexpected(job.error())};
    reply.resident_bytes = resident_bytes();
    if (!write_frame(channel, encode_reply(reply))) return 1;
  }
  return 0;
}

int run_compile_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() != kArguments) return 2;
  NvrtcFiles files;
  files.library = arguments[0];
  files.builtins = arguments[1];
  files.version = arguments[2];
  files.build = arguments[3];
  auto nvrtc = NvrtcApi::open(files);
  if (!nvrtc) {
    NoCompiler none(std::move(nvrtc.error()));
    return serve_compiles(Subprocess::kChildChannel, none);
  }
  NvrtcCompiler compiler(*nvrtc);
  return serve_compiles(Subprocess::kChildChannel, compiler);
}

}  // namespace ingot::jit
