#include "runtime/jit/kernel_store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/log.hpp"
#include "runtime/jit/compile_job.hpp"

namespace ingot::jit {
namespace {

using EntryPtr = std::shared_ptr<const CacheEntry>;

constexpr std::chrono::seconds kTemporaryAge = std::chrono::hours(1);

std::string title(const KernelRequest& request) {
  return fmt::format("{} for {}", describe(request.variant), request.arch);
}

Unexpected barred_error(const KernelRequest& request, const std::string& reason,
                        const CompiledKernel& kernel) {
  const ErrorCode code =
      kernel.resources.spills() ? ErrorCode::unsupported : ErrorCode::compile_failed;
  return Unexpected(
      Error{code, fmt::format("{} is barred: {}", title(request), reason), kernel.log});
}

std::string spill_reason(const Resources& used) {
  return fmt::format("it spills registers ({} bytes stored, {} loaded)", used.spill_store_bytes,
                     used.spill_load_bytes);
}

/// Why the entry must not serve this request; empty when it may, or when it holds nothing but a
/// complaint about spills that this request does not share.
std::string reason_against(const CacheEntry& entry, const KernelRequest& request) {
  if (entry.kernel.resources.spills()) {
    return request.allow_spills ? "" : spill_reason(entry.kernel.resources);
  }
  return entry.barred;
}

std::string folders(const std::vector<CubinCache>& layers) {
  std::string text;
  for (const CubinCache& layer : layers) {
    text += (text.empty() ? "" : ", ") + layer.directory().string();
  }
  return text.empty() ? "no folder" : text;
}

}  // namespace

KernelStore::KernelStore(SourceTree templates, Result<std::shared_ptr<Compiler>> compiler,
                         Options options)
    : templates_(std::move(templates)),
      compiler_(std::move(compiler)),
      options_(std::move(options)) {
  for (const auto& directory : options_.directories)
    layers_.emplace_back(directory);
}

void KernelStore::count(int Stats::*counter) {
  const std::lock_guard lock(mutex_);
  ++(stats_.*counter);
}

KernelStore::Stats KernelStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void KernelStore::warn_once(const std::string& topic, const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.emplace(topic, true).second) return;
  }
  log::warn("{}", line);
}

Result<SourceBundle> KernelStore::bundle(const std::string& family) const {
  const std::lock_guard lock(mutex_);
  const auto found = bundles_.find(family);
  if (found != bundles_.end()) return found->second;
  return bundles_.emplace(family, templates_.bundle(template_name(family))).first->second;
}

Result<Manifest> KernelStore::manifest(const KernelRequest& request) const {
  const auto source = bundle(request.variant.family);
  if (!source) return tl::unexpected(source.error());
  return manifest_of(*source, request.variant, request.arch,
                     compiler_ ? (*compiler_)->identity() : CompilerIdentity{});
}

std::string KernelStore::memory_key(const KernelRequest& request, const Manifest& manifest) {
  return fmt::format("{} {} {}", manifest.kernel_key(), manifest.compiler_key(),
                     request.allow_spills);
}

KernelStore::Outcome KernelStore::get(const KernelRequest& request) {
  const auto wanted = manifest(request);
  if (!wanted) return tl::unexpected(wanted.error());
  const std::string key = memory_key(request, *wanted);
  std::promise<Outcome> promise;
  std::shared_future<Outcome> future;
  bool ours = false;
  {
    const std::lock_guard lock(mutex_);
    auto& slot = kernels_[key];
    if (!slot.valid()) {
      slot = promise.get_future().share();
      ours = true;
    }
    future = slot;
  }
  if (!ours) return future.get();
  try {
    Outcome outcome = find_or_compile(request, *wanted);
    // What may go better next time is not remembered.
    const bool transient = !outcome && outcome.error().code != ErrorCode::compile_failed &&
                           outcome.error().code != ErrorCode::unsupported;
    promise.set_value(outcome);
    if (transient) {
      const std::lock_guard lock(mutex_);
      kernels_.erase(key);
    }
    return outcome;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    kernels_.erase(key);
    throw;
  }
}

KernelStore::Outcome KernelStore::find_or_compile(const KernelRequest& request,
                                                  const Manifest& manifest) {
  if (compiler_) {
    if (const EntryPtr entry = look_up(manifest)) {
      if (const std::string reason = reason_against(*entry, request); !reason.empty()) {
        count(&Stats::barred);
        return barred_error(request, reason, entry->kernel);
      }
      if (!entry->is_barred()) {
        count(&Stats::hits);
        return entry;
      }
    }
  }
  if (options_.frozen || !compiler_) {
    if (EntryPtr entry = look_up_any_compiler(manifest)) {
      count(&Stats::hits);
      return entry;
    }
    return fail(ErrorCode::not_found,
                fmt::format("{} is not in the kernel cache ({}), and it cannot be compiled: {}",
                            title(request), folders(layers_),
                            options_.frozen ? "the cache is frozen (--frozen); fill it with "
                                              "ingot prewarm"
                                            : compiler_.error().message));
  }
  return compile(request, manifest);
}

EntryPtr KernelStore::look_up(const Manifest& manifest) {
  for (const CubinCache& layer : layers_) {
    auto entry = layer.find(manifest);
    if (entry) return std::make_shared<const CacheEntry>(std::move(*entry));
    const Error& error = entry.error();
    if (error.code == ErrorCode::not_found) continue;
    if (error.code == ErrorCode::corrupt) {
      count(&Stats::damaged);
      log::warn("{}; it is built again", error.message);
    } else {
      warn_once("read " + layer.directory().string(),
                fmt::format("{}; the folder is passed over", error.message));
    }
  }
  return nullptr;
}

EntryPtr KernelStore::look_up_any_compiler(const Manifest& manifest) const {
  for (const CubinCache& layer : layers_) {
    auto entry = layer.find_any_compiler(manifest);
    if (entry) return std::make_shared<const CacheEntry>(std::move(*entry));
  }
  return nullptr;
}

KernelStore::Outcome KernelStore::compile(const KernelRequest& request, const Manifest& manifest) {
  const auto source = bundle(request.variant.family);
  if (!source) return tl::unexpected(source.error());
  CompileJob job = make_job(*source, request.variant, request.arch);
  count(&Stats::compiled);
  auto kernel = (*compiler_)->compile(job);

  CacheEntry entry{.manifest = manifest, .barred = {}, .source = {}, .kernel = {}};
  if (!kernel) {
    Error error = std::move(kernel.error());
    error.message = fmt::format("{}: {}", describe(request.variant), error.message);
    if (error.code == ErrorCode::compile_failed) {
      entry.barred = error.message;
      entry.kernel.log = error.log;
      save(entry);
    }
    return tl::unexpected(std::move(error));
  }
  entry.kernel = std::move(*kernel);
  const Resources& used = entry.kernel.resources;
  if (used.spills() && !request.allow_spills) {
    entry.barred = spill_reason(used);
    entry.kernel.cubin.clear();
    save(entry);
    return barred_error(request, entry.barred, entry.kernel);
  }
  entry.source = std::move(job.source);
  save(entry);
  return std::make_shared<const CacheEntry>(std::move(entry));
}

void KernelStore::save(const CacheEntry& entry) {
  if (layers_.empty()) {
    count(&Stats::unsaved);
    warn_once("save",
              "there is no kernel cache folder: kernels are kept in memory and compiled again at "
              "the next start; name one with --cache-dir");
    return;
  }
  bool sweep = false;
  {
    const std::lock_guard lock(mutex_);
    sweep = !std::exchange(swept_, true);
  }
  if (sweep) (void)sweep_temporaries(layers_.front().directory(), kTemporaryAge);
  if (const auto published = layers_.front().publish(entry); !published) {
    count(&Stats::unsaved);
    warn_once("save", fmt::format("the kernel cache cannot be written ({}): kernels are kept in "
                                  "memory and compiled again at the next start",
                                  published.error().message));
  }
}

EntryPtr KernelStore::find(const KernelRequest& request) {
  const auto wanted = manifest(request);
  if (!wanted) return nullptr;
  const std::string key = memory_key(request, *wanted);
  {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(key);
    if (known != kernels_.end()) {
      const std::shared_future<Outcome>& outcome = known->second;
      const bool over = outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      return over && outcome.get() ? *outcome.get() : nullptr;
    }
  }
  EntryPtr found;
  for (const CubinCache& layer : layers_) {
    auto entry = layer.find(*wanted);
    if (!entry) continue;
    if (!entry->is_barred() && reason_against(*entry, request).empty())
      found = std::make_shared<const CacheEntry>(std::move(*entry));
    break;
  }
  if (!found && (options_.frozen || !compiler_)) found = look_up_any_compiler(*wanted);
  if (!found) return nullptr;
  std::promise<Outcome> promise;
  promise.set_value(found);
  const std::lock_guard lock(mutex_);
  ++stats_.hits;
  kernels_.try_emplace(key, promise.get_future().share());
  return found;
}

bool KernelStore::would_compile(const KernelRequest& request) const {
  const auto wanted = manifest(request);
  if (!wanted) return false;
  for (const CubinCache& layer : layers_) {
    const auto entry = layer.find(*wanted);
    if (entry) return entry->is_barred() && reason_against(*entry, request).empty();
  }
  return true;
}

Result<void> KernelStore::bar(const KernelRequest& request, const std::string& reason) {
  const auto wanted = manifest(request);
  if (!wanted) return tl::unexpected(wanted.error());
  const CacheEntry entry{.manifest = *wanted, .barred = reason, .source = {}, .kernel = {}};
  // In memory the verdict takes the kernel's place, and is not only taken out: whoever asks before
  // it is in the folder, or where there is none, must not find the kernel again.
  const std::string key = fmt::format("{} {} ", wanted->kernel_key(), wanted->compiler_key());
  std::promise<Outcome> verdict;
  verdict.set_value(barred_error(request, reason, {}));
  const std::shared_future<Outcome> barred = verdict.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    kernels_[key + "true"] = barred;
    kernels_[key + "false"] = barred;
  }
  if (layers_.empty()) return fail(ErrorCode::io, "there is no kernel cache folder to bar it in");
  return layers_.front().publish(entry);
}

Result<std::vector<std::string>> KernelStore::explain(const KernelRequest& request) const {
  const auto wanted = manifest(request);
  if (!wanted) return tl::unexpected(wanted.error());
  std::vector<std::string> lines;
  std::optional<std::vector<std::string>> fewest;
  std::filesystem::path nearest;
  for (const CubinCache& layer : layers_) {
    const auto file = layer.directory() / CubinCache::file_name(*wanted);
    if (const auto entry = layer.find(*wanted)) {
      lines.push_back(entry->is_barred()
                          ? fmt::format("barred by {}: {}", file.string(), entry->barred)
                          : fmt::format("hit: {}", file.string()));
      return lines;
    } else if (entry.error().code != ErrorCode::not_found) {
      lines.push_back(entry.error().message);
    }
    for (const CubinCache::File& candidate : layer.files()) {
      if (!candidate.path.filename().string().starts_with(request.variant.family + "-")) continue;
      const auto entry = CubinCache::read(candidate.path);
      if (!entry || entry->manifest.family != request.variant.family) continue;
      auto found = differences(*wanted, entry->manifest);
      if (fewest && fewest->size() <= found.size()) continue;
      fewest = std::move(found);
      nearest = candidate.path;
    }
  }
  if (!fewest) {
    lines.push_back(fmt::format("miss: no entry of the family {} in {}", request.variant.family,
                                folders(layers_)));
    return lines;
  }
  lines.push_back(fmt::format("miss: the nearest entry is {}", nearest.string()));
  for (auto& difference : *fewest)
    lines.push_back("  " + std::move(difference));
  return lines;
}

}  // namespace ingot::jit
