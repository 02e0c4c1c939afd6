#include "src/executor/kernel_library.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"

namespace ingot::executor {

void KernelScratch::make_room_for(const KernelScratch& other) {
  any = std::max(any, other.any);
  any_more = std::max(any_more, other.any_more);
  ones = std::max(ones, other.ones);
  ones_more = std::max(ones_more, other.ones_more);
  ones_beside = std::max(ones_beside, other.ones_beside);
}

KernelLibrary::KernelLibrary(const cu::Context& context, jit::KernelStore& kernels,
                             TuningStore* records, TuningScope scope, Overrides overrides)
    : context_(context),
      kernels_(kernels),
      records_(records),
      scope_(std::move(scope)),
      overrides_(std::move(overrides)),
      limits_(cu::limits_of(context.device())) {}

KernelLibrary::Slot KernelLibrary::add(Use use) {
  if (use.request.candidates.empty()) {
    throw EngineError(ErrorCode::unsupported,
                      "planning the kernels of " + describe(use.request.problem) +
                          ": no kernel family runs this on " + context_.device().name);
  }
  std::string name = use.request.title();
  if (!use.launched_as.empty()) name += " for " + use.launched_as;
  const auto known = slots_.find(name);
  if (known != slots_.end()) return known->second;
  uses_.push_back(std::move(use));
  slots_.emplace(name, uses_.size() - 1);
  return uses_.size() - 1;
}

void KernelLibrary::prepare(int jobs) {
  std::vector<Slot> open;
  for (Slot slot = 0; slot < uses_.size(); ++slot) {
    if (!uses_[slot].ready) open.push_back(slot);
  }
  (void)prepare_open(open, jobs, true);
}

void KernelLibrary::prepare(std::span<const Slot> slots, int jobs) {
  (void)prepare_open(open_of(slots), jobs, true);
}

bool KernelLibrary::prepare_compiled(std::span<const Slot> slots, int jobs) {
  return prepare_open(open_of(slots), jobs, false);
}

std::vector<KernelLibrary::Slot> KernelLibrary::open_of(std::span<const Slot> slots) const {
  std::set<Slot> open;  // one may serve several launches
  for (const Slot slot : slots) {
    if (!uses_[slot].ready) open.insert(slot);
  }
  return {open.begin(), open.end()};
}

bool KernelLibrary::prepare_open(const std::vector<Slot>& open, int jobs, bool compiles) {
  if (open.empty()) return true;
  std::vector<TuningRequest> requests;
  for (const Slot slot : open)
    requests.push_back(uses_[slot].request);

  std::vector<Selection> selections;
  if (records_ != nullptr) {
    LookUp found = value_or_throw(look_up(requests, scope_, kernels_, *records_, overrides_));
    selections = std::move(found.selections);
  } else {
    for (const TuningRequest& request : requests) {
      const auto allowed = value_or_throw(overrides_.allowed(request));
      selections.push_back(select(request, allowed, std::nullopt));
    }
  }

  for (std::size_t i = 0; i < open.size(); ++i) {
    // What every size of step shares must not change with what was tuned.
    if (uses_[open[i]].launched_as.empty()) continue;
    const auto allowed = value_or_throw(overrides_.allowed(requests[i]));
    selections[i] = select(requests[i], allowed, std::nullopt);
  }

  std::map<std::string, const jit::Variant*> missing;  // by its text
  for (std::size_t i = 0; i < open.size(); ++i) {
    const jit::Variant& variant = requests[i].candidates[selections[i].candidate];
    std::string text = jit::describe(variant);
    if (!loaded_.contains(text)) missing.emplace(std::move(text), &variant);
  }
  struct Found {
    const jit::Variant* variant;
    std::shared_ptr<const jit::CacheEntry> entry;
  };
  std::vector<Found> found;
  for (const auto& [text, variant] : missing)
    found.push_back({variant, nullptr});
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> uncompiled = false;
  std::optional<Error> failure;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < found.size(); i = next++) {
      const jit::KernelRequest request{
          .variant = *found[i].variant, .arch = scope_.device.arch, .allow_spills = true};
      if (!compiles) {
        found[i].entry = kernels_.find(request);
        if (!found[i].entry) uncompiled = true;
        continue;
      }
      auto entry = kernels_.get(request);
      const std::lock_guard lock(mutex);
      if (entry) {
        found[i].entry = std::move(*entry);
      } else if (!failure) {
        failure = entry.error();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < std::min<int>(jobs, static_cast<int>(found.size())); ++t)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads)
    thread.join();
  if (failure) throw EngineError(std::move(*failure));
  if (uncompiled) return false;
  for (const Found& one : found) {
    loaded_.emplace(jit::describe(*one.variant),
                    jit::Kernel::load(context_, one.entry->kernel.cubin, one.variant->family));
  }

  for (std::size_t i = 0; i < open.size(); ++i) {
    const jit::Variant& variant = requests[i].candidates[selections[i].candidate];
    const jit::Kernel& kernel = loaded_.at(jit::describe(variant));
    const Launch launch = uses_[open[i]].launch(variant);
    // One split of the multiprocessors' memory for all: a block starts beside those of the launch
    // before only where both want the same, and then has its weights on their way before its turn.
    kernel.prefer_shared_memory(context_);
    uses_[open[i]].ready = ReadyKernel{.kernel = kernel,
                                       .shape = launch.shape,
                                       .scratch = launch.scratch,
                                       .variant = jit::describe(variant),
                                       .source = selections[i].source,
                                       .forced = selections[i].forced};
  }
  return true;
}

ReadyKernel KernelLibrary::load(Slot slot, const jit::Variant& variant,
                                std::span<const std::byte> cubin) const {
  const jit::Kernel kernel = jit::Kernel::load(context_, cubin, variant.family);
  const Launch launch = uses_[slot].launch(variant);
  kernel.prefer_shared_memory(context_);
  return {.kernel = kernel,
          .shape = launch.shape,
          .scratch = launch.scratch,
          .variant = jit::describe(variant)};
}

}  // namespace ingot::executor
