#include "src/cli/kernel_cache.hpp"

#include "kernel_templates/family.hpp"
#include "runtime/base/shared_library.hpp"
#include "src/executor/step_trace.hpp"

namespace ingot {

std::vector<jit::CubinCache> kernel_layers(const KernelCacheOptions& options) {
  std::vector<jit::CubinCache> layers;
  for (const auto& directory : options.cache_dirs)
    layers.emplace_back(directory / "kernels");
  return layers;
}

std::vector<TuningCache> tuning_layers(const KernelCacheOptions& options) {
  std::vector<TuningCache> layers;
  for (const auto& directory : options.cache_dirs)
    layers.emplace_back(directory / "tuning");
  return layers;
}

std::unique_ptr<TuningStore> open_tuning_store(const KernelCacheOptions& options) {
  std::vector<std::filesystem::path> directories;
  for (const auto& layer : tuning_layers(options))
    directories.push_back(layer.directory());
  return std::make_unique<TuningStore>(directories, options.frozen || !find_nvrtc(options));
}

Result<jit::NvrtcFiles> find_nvrtc(const KernelCacheOptions& options) {
  return jit::find_nvrtc(library_search_path(options.library_dirs));
}

Result<std::unique_ptr<jit::KernelStore>> open_kernel_store(const KernelCacheOptions& options,
                                                            int jobs) {
  jit::SourceTree templates = kernels::embedded_templates();
  if (!options.template_dir.empty()) {
    auto read = jit::SourceTree::read_directory(options.template_dir);
    if (!read) return tl::unexpected(read.error());
    templates = std::move(*read);
  }
  if (options.traced) templates = executor::traced_templates(templates);
  Result<std::shared_ptr<jit::Compiler>> compiler = std::shared_ptr<jit::Compiler>();
  if (const auto files = find_nvrtc(options)) {
    compiler = std::make_shared<jit::CompilePool>(
        jit::CompilerIdentity{files->version, files->build},
        jit::CompilePool::Options{.worker_command = jit::CompilePool::worker_command(*files),
                                  .jobs = jobs});
  } else {
    compiler = tl::unexpected(files.error());
  }
  std::vector<std::filesystem::path> directories;
  for (const auto& layer : kernel_layers(options))
    directories.push_back(layer.directory());
  return std::make_unique<jit::KernelStore>(
      std::move(templates), std::move(compiler),
      jit::KernelStore::Options{.directories = std::move(directories), .frozen = options.frozen});
}

}  // namespace ingot
