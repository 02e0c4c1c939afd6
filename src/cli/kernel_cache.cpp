#include "src/cli/kernel_cache.hpp"

#include <unistd.h>

#include "kernel_templates/family.hpp"
#include "runtime/base/shared_library.hpp"
#include "runtime/jit/compile_job.hpp"
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

namespace {

/// The templates that the options name, as choices are made for them.
Result<jit::SourceTree> plain_templates(const KernelCacheOptions& options) {
  if (options.template_dir.empty()) return kernels::embedded_templates();
  return jit::SourceTree::read_directory(options.template_dir);
}

/// The records under the keys that traced templates have: what was chosen for a kernel is what a
/// trace of it is to show. In memory alone.
std::unique_ptr<TuningStore> traced_records(const TuningStore& records,
                                            const jit::SourceTree& plain) {
  const jit::SourceTree traced = executor::traced_templates(plain);
  const auto digest = [](const jit::SourceTree& tree, const std::string& family) {
    const auto bundle = tree.bundle(jit::template_name(family));
    return bundle ? bundle->digest.hex() : std::string();
  };
  // Saving keeps a record in memory; the folder is there so that there is one to write to.
  const auto folder =
      std::filesystem::temp_directory_path() / ("ingot-traced-" + std::to_string(::getpid()));
  auto store = std::make_unique<TuningStore>(std::vector{folder});
  for (TuningRecord& record : records.all()) {
    bool is_current = true;
    for (auto& family : record.key.families) {
      is_current = is_current && family.source_digest == digest(plain, family.stem);
      family.source_digest = digest(traced, family.stem);
    }
    if (is_current) (void)store->save(record);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return store;
}

}  // namespace

std::unique_ptr<TuningStore> open_tuning_store(const KernelCacheOptions& options) {
  std::vector<std::filesystem::path> directories;
  for (const auto& layer : tuning_layers(options))
    directories.push_back(layer.directory());
  auto records = std::make_unique<TuningStore>(directories, options.frozen || !find_nvrtc(options));
  if (!options.traced) return records;
  const auto plain = plain_templates(options);
  return plain ? traced_records(*records, *plain) : std::move(records);  // the kernel store tells
}

Result<jit::NvrtcFiles> find_nvrtc(const KernelCacheOptions& options) {
  return jit::find_nvrtc(library_search_path(options.library_dirs));
}

Result<std::unique_ptr<jit::KernelStore>> open_kernel_store(const KernelCacheOptions& options,
                                                            int jobs) {
  auto read = plain_templates(options);
  if (!read) return tl::unexpected(read.error());
  jit::SourceTree templates = std::move(*read);
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
