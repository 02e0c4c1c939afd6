#include "runtime/jit/nvrtc_compiler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/unique.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/cubin_info.hpp"

namespace ingot::jit {
namespace {

struct ProgramHandle {
  nvrtcProgram raw = nullptr;
  const NvrtcApi* nvrtc = nullptr;
  explicit operator bool() const { return raw != nullptr; }
};

nvrtcResult destroy_program(const ProgramHandle& handle) {
  nvrtcProgram program = handle.raw;
  return handle.nvrtc->nvrtcDestroyProgram(&program);
}

using Program = Unique<ProgramHandle, destroy_program>;

std::string program_log(const NvrtcApi& nvrtc, nvrtcProgram program) {
  std::size_t bytes = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || bytes <= 1) return {};
  std::string log(bytes, '\0');
  if (nvrtc.nvrtcGetProgramLog(program, log.data()) != NVRTC_SUCCESS) return {};
  log.resize(bytes - 1);  // the size counts the terminating zero
  return log;
}

/// The first line that says what is wrong, for the one-line message.
std::string first_error(const std::string& log) {
  const std::size_t error = log.find("error");
  if (error == std::string::npos) return {};
  const std::size_t begin = log.rfind('\n', error) + 1;  // npos + 1 == 0: the first line
  return log.substr(begin, log.find('\n', error) - begin);
}

}  // namespace

CompilerIdentity NvrtcCompiler::identity() const {
  return {nvrtc_->files().version, nvrtc_->files().build};
}

Result<CompiledKernel> NvrtcCompiler::compile(const CompileJob& job) {
  const auto start = std::chrono::steady_clock::now();
  const auto supported = nvrtc_->supported_archs();
  if (const auto number = arch_number(job.arch);
      number && std::find(supported.begin(), supported.end(), *number) == supported.end()) {
    return fail(ErrorCode::unsupported,
                fmt::format("compiling {} for {}: NVRTC {} ({}) does not know this architecture; "
                            "it knows {}; install a newer NVRTC",
                            job.name, job.arch, nvrtc_->files().version,
                            nvrtc_->files().library.string(), fmt::join(supported, ", ")));
  }

  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const SourceFile& header : job.headers) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }
  nvrtcProgram raw = nullptr;
  if (const nvrtcResult result =
          nvrtc_->nvrtcCreateProgram(&raw, job.source.c_str(), job.name.c_str(),
                                     static_cast<int>(texts.size()), texts.data(), names.data());
      result != NVRTC_SUCCESS) {
    return fail(ErrorCode::compile_failed,
                fmt::format("compiling {}: nvrtcCreateProgram: {}", job.name,
                            nvrtc_->nvrtcGetErrorString(result)));
  }
  const Program program({raw, nvrtc_.get()});

  const std::string arch_option = "--gpu-architecture=" + job.arch;
  std::vector<const char*> options{arch_option.c_str()};
  for (const std::string& option : job.options)
    options.push_back(option.c_str());
  // Where there is a driver, NVRTC keeps a cache of its own; what comes from it has no report of
  // the assembler. Compilers that do not know the option have no such cache.
  options.push_back("--no-cache");
  nvrtcResult result =
      nvrtc_->nvrtcCompileProgram(raw, static_cast<int>(options.size()), options.data());
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    options.pop_back();
    result = nvrtc_->nvrtcCompileProgram(raw, static_cast<int>(options.size()), options.data());
  }

  CompiledKernel kernel;
  kernel.log = program_log(*nvrtc_, raw);
  if (result != NVRTC_SUCCESS) {
    const std::string reason = first_error(kernel.log);
    return tl::unexpected(
        Error{ErrorCode::compile_failed,
              fmt::format("compiling {} for {}: {}{}{}", job.name, job.arch,
                          nvrtc_->nvrtcGetErrorString(result), reason.empty() ? "" : ": ", reason),
              std::move(kernel.log)});
  }
  std::size_t bytes = 0;
  if (nvrtc_->nvrtcGetCUBINSize(raw, &bytes) != NVRTC_SUCCESS || bytes == 0) {
    return fail(ErrorCode::compile_failed,
                fmt::format("compiling {} for {}: NVRTC made no cubin (a virtual architecture?)",
                            job.name, job.arch));
  }
  kernel.cubin.resize(bytes);
  if (nvrtc_->nvrtcGetCUBIN(raw, reinterpret_cast<char*>(kernel.cubin.data())) != NVRTC_SUCCESS) {
    return fail(ErrorCode::compile_failed,
                fmt::format("compiling {} for {}: nvrtcGetCUBIN failed", job.name, job.arch));
  }
  auto resources = resources_in_log(kernel.log);
  if (!resources) resources = resources_in_cubin(kernel.cubin);
  if (!resources) return tl::unexpected(resources.error());
  kernel.resources = *resources;
  kernel.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

}  // namespace ingot::jit
