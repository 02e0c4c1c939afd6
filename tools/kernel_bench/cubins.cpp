#include "tools/kernel_bench/cubins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/jit/compile_job.hpp"

namespace ingot::bench {

CubinFolder::CubinFolder(std::filesystem::path folder, std::string arch)
    : folder_(std::move(folder)), arch_(std::move(arch)), tree_(kernels::embedded_templates()) {}

std::filesystem::path CubinFolder::file_of(const jit::Variant& variant) const {
  const auto bundle = value_or_throw(tree_.bundle(jit::template_name(variant.family)));
  // The parameters of some families are longer than a file name may be.
  return folder_ / fmt::format("{}-{}-{}-{}.cubin", variant.family, arch_,
                               bundle.digest.hex().substr(0, 12),
                               digest_of(jit::describe(variant)).hex().substr(0, 16));
}

Result<std::vector<std::byte>> CubinFolder::load(const jit::Variant& variant) const {
  const auto file = file_of(variant);
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) {
    return fail(ErrorCode::not_found, fmt::format("no compiled kernel {}: run `kernel_bench "
                                                  "compile` into this folder first",
                                                  file.string()));
  }
  std::vector<std::byte> cubin(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(cubin.data()), static_cast<std::streamsize>(cubin.size()));
  if (!in) return fail(ErrorCode::io, fmt::format("reading {} failed", file.string()));
  return cubin;
}

CubinFolder::Report CubinFolder::fill(jit::Compiler& compiler,
                                      const std::vector<jit::Variant>& variants, int jobs) const {
  std::filesystem::create_directories(folder_);
  Report report;
  std::mutex mutex;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t at = next++; at < variants.size(); at = next++) {
      const jit::Variant& variant = variants[at];
      const auto file = file_of(variant);
      if (std::filesystem::exists(file)) {
        const std::scoped_lock lock(mutex);
        ++report.kept;
        continue;
      }
      const auto bundle = value_or_throw(tree_.bundle(jit::template_name(variant.family)));
      const auto kernel = compiler.compile(jit::make_job(bundle, variant, arch_));
      const std::scoped_lock lock(mutex);
      if (!kernel || kernel->resources.spills()) {
        report.failed.push_back(
            fmt::format("{}: {}", jit::describe(variant),
                        kernel ? fmt::format("spills {} bytes", kernel->resources.spill_store_bytes)
                               : kernel.error().message + "\n" + kernel.error().log));
        fmt::print(stderr, "kernel_bench: {}\n", report.failed.back());
        if (!kernel) continue;
      }
      std::ofstream out(file, std::ios::binary);
      out.write(reinterpret_cast<const char*>(kernel->cubin.data()),
                static_cast<std::streamsize>(kernel->cubin.size()));
      if (!out.flush()) {
        throw EngineError(ErrorCode::io, fmt::format("writing {} failed", file.string()));
      }
      ++report.compiled;
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < jobs; ++i)
    threads.emplace_back(work);
  threads.clear();  // joins
  return report;
}

}  // namespace ingot::bench
