#include "src/executor/device_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "src/engine/check_step.hpp"
#include "src/executor/device_engine_impl.hpp"
#include "src/executor/memory_costs.hpp"
#include "src/plan/kernel_requests.hpp"

namespace ingot {
namespace {

using executor::PageChange;
using executor::Part;
using executor::SequenceRecord;

[[noreturn]] void refuse(ErrorCode code, std::string message) {
  throw EngineError(code, std::move(message));
}

std::uint64_t number(SequenceId sequence) {
  return static_cast<std::uint64_t>(sequence);
}

std::int64_t checked_context(const ModelConfig& config, const DeviceOptions& options) {
  if (options.max_context < 0 || options.max_context > config.max_position_embeddings) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("starting the device engine: a context of {} tokens asked for, the model "
                       "has 1 to {}",
                       options.max_context, config.max_position_embeddings));
  }
  return options.max_context > 0 ? options.max_context : config.max_position_embeddings;
}

/// Room for the state in what weights and buffers have left.
executor::StateSizes state_sizes(const ModelConfig& config, const DeviceOptions& options,
                                 std::int64_t max_context, std::uint64_t free_bytes) {
  const MemoryPlan plan =
      value_or_throw(plan_memory("starting the device engine beside the weights",
                                 executor::state_memory_costs(config, max_context),
                                 {.sequences = options.max_sequences,
                                  .max_context = max_context,
                                  .context_tokens = options.context_tokens},
                                 free_bytes));
  return {.slots = plan.wish.sequences,
          .csa_pages = plan.csa_pages,
          .hca_pages = plan.hca_pages,
          .max_context = max_context};
}

}  // namespace

DeviceEngine::Impl::Impl(cu::Context opened, ModelConfig model, executor::DeviceWeights loaded,
                         KernelSource from, const DeviceOptions& given)
    : context(std::move(opened)),
      model_config(std::move(model)),
      options(given),
      max_context(checked_context(model_config, given)),
      source(std::move(from)),
      weights(std::move(loaded)),
      stream(cu::Stream::create(context)),
      memory(context, stream, model_config, 1, max_context),
      state(context, model_config,
            state_sizes(model_config, given, max_context, context.free_bytes())),
      table(state.sizes().slots, state.sizes().csa_pages, state.sizes().hca_pages),
      scratch(context, stream),
      library(context, *source.kernels, source.records.get(),
              TuningScope{.device = source.device, .tp_size = 1, .policy = source.policy},
              source.overrides) {
  value_or_throw(kernel_uses(model_config, {}, library.limits()));
  counted.weight_bytes = weights.bytes();
  counted.state_bytes = executor::state_costs(model_config, max_context).bytes(state.sizes());
  counted.context_tokens = (state.sizes().csa_pages > 0 ? state.sizes().csa_pages * kCsaPageTokens
                                                        : state.sizes().hca_pages * kHcaPageTokens);
  stream.synchronize();
}

DeviceEngine::Impl::~Impl() {
  try {
    stream.synchronize();
  } catch (const EngineError&) {
    // The device is lost; what is left is to free what the driver still lets us free.
  }
}

SequenceRecord& DeviceEngine::Impl::record(SequenceId sequence, const char* attempt) {
  SequenceRecord* found = table.find(sequence);
  if (found == nullptr) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: there is no sequence {}", attempt, number(sequence)));
  }
  return *found;
}

void DeviceEngine::Impl::check(std::span<const SequenceStep> batch) {
  check_step(batch, model_config.vocab_size, max_context,
             [&](SequenceId sequence) { return record(sequence, "running a step").length; });
  int csa = 0, hca = 0;
  for (const SequenceStep& step : batch) {
    const SequenceRecord& r = *table.find(step.sequence);
    const std::int64_t end = r.length + static_cast<std::int64_t>(step.tokens.size());
    csa += table.csa_pages_needed(r, end);
    hca += table.hca_pages_needed(r, end);
  }
  if (csa > table.free_csa_pages() || hca > table.free_hca_pages()) {
    refuse(ErrorCode::exhausted,
           fmt::format("running a step of {} sequences: {} pages of context are needed, {} of {} "
                       "tokens are free; end sequences, or start with fewer or shorter ones",
                       batch.size(), csa + hca, table.free_csa_pages() * kCsaPageTokens,
                       counted.context_tokens));
  }
}

void DeviceEngine::Impl::grow(SequenceRecord& r, std::int64_t length) {
  const PageChange csa = table.grow_csa(r, length);
  for (const auto& copy : csa.copies)
    state.copy_csa_page(stream, copy.from, copy.to);
  if (csa.first < r.csa_pages.size()) {
    state.write_csa_row(stream, r.slot, csa.first, std::span(r.csa_pages).subspan(csa.first));
  }
  const PageChange hca = table.grow_hca(r, length);
  for (const auto& copy : hca.copies)
    state.copy_hca_page(stream, copy.from, copy.to);
  if (hca.first < r.hca_pages.size()) {
    state.write_hca_row(stream, r.slot, hca.first, std::span(r.hca_pages).subspan(hca.first));
  }
}

std::vector<std::vector<executor::Part>> DeviceEngine::Impl::plan(
    std::span<const SequenceStep> batch, std::vector<StepLogits>& results) {
  const auto vocab = static_cast<std::size_t>(model_config.vocab_size);
  std::vector<std::vector<Part>> passes;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto tokens = static_cast<std::int64_t>(batch[i].tokens.size());
    StepLogits& result = results[i];
    result.rows = batch[i].logits == LogitsOf::none   ? 0
                  : batch[i].logits == LogitsOf::last ? 1
                                                      : static_cast<int>(tokens);
    result.values.resize(static_cast<std::size_t>(result.rows) * vocab);
    for (std::int64_t begin = 0; begin < tokens;) {
      if (passes.empty() || begin > 0 || rows == kMostStepRows) {
        passes.emplace_back();
        rows = 0;
      }
      const std::int64_t count = std::min<std::int64_t>(tokens - begin, kMostStepRows - rows);
      const std::int64_t first = std::max(begin, tokens - result.rows);
      const std::int64_t wanted = std::max<std::int64_t>(0, begin + count - first);
      const auto at = static_cast<std::size_t>(first - (tokens - result.rows)) * vocab;
      passes.back().push_back({.record = table.find(batch[i].sequence),
                               .tokens = batch[i].tokens.subspan(static_cast<std::size_t>(begin),
                                                                 static_cast<std::size_t>(count)),
                               .logits = wanted > 0 ? result.values.data() + at : nullptr,
                               .wanted = wanted});
      begin += count;
      rows += count;
    }
  }
  return passes;
}

executor::Bucket& DeviceEngine::Impl::ready_bucket(const StepBucket& size) {
  const auto known = buckets.find(size);
  if (known != buckets.end()) return known->second;
  const StepProblems problems = step_problems(model_config, 1, size);
  const auto kernels = StepKernels::want(library, model_config, problems);
  library.prepare(options.jobs);
  const auto memory_for_it = scratch.take(executor::scratch_of(library, kernels));
  return buckets
      .emplace(size, Bucket{.program =
                                executor::StepProgram(model_config, size, kernels, library, weights,
                                                      state, memory.buffers(), memory_for_it),
                            .graph = std::nullopt})
      .first->second;
}

void DeviceEngine::Impl::run(Bucket& bucket) {
  ++counted.steps;
  if (!options.graphs || !bucket.ran) {
    bucket.program.launch(stream);
    bucket.ran = true;
    return;
  }
  if (!bucket.graph) {
    const std::uint64_t free_before = context.free_bytes();
    cu::Capture capture(stream);
    bucket.program.launch(stream);
    bucket.graph = cu::GraphExec::instantiate(capture.finish());
    bucket.graph->upload(stream);
    const std::uint64_t free_after = context.free_bytes();
    counted.graph_bytes += free_before > free_after ? free_before - free_after : 0;
    ++counted.graphs;
  }
  bucket.graph->launch(stream);
  ++counted.graph_steps;
}

void DeviceEngine::Impl::run_pass(std::span<Part> parts) {
  StepBucket step{.rows = 0,
                  .sequences = static_cast<int>(parts.size()),
                  .sequence_rows = 1,
                  .logit_rows = 0,
                  .context = 1};
  executor::StepInputs& in = inputs;
  std::vector<std::pair<int, Part*>> first_wanted;  // row of the first wanted token of a part
  for (std::size_t p = 0; p < parts.size(); ++p) {
    Part& part = parts[p];
    const SequenceRecord& r = *part.record;
    in.row_starts[p] = step.rows;
    in.slots[p] = r.slot;
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    for (std::int64_t t = 0; t < count; ++t) {
      in.ids[step.rows] = part.tokens[static_cast<std::size_t>(t)];
      in.positions[step.rows] = static_cast<int>(r.length + t);
      in.sequences[step.rows] = r.slot;
      if (t >= count - part.wanted) {
        if (t == count - part.wanted) first_wanted.emplace_back(step.logit_rows, &part);
        in.picks[step.logit_rows++] = step.rows;
      }
      ++step.rows;
    }
    step.sequence_rows = std::max(step.sequence_rows, static_cast<int>(count));
    step.context = std::max(step.context, r.length + count);
  }
  const StepBucket size = bucket_of(step, model_config.max_position_embeddings);
  for (int row = step.rows; row < size.rows; ++row) {
    in.ids[row] = 0;
    in.positions[row] = 0;
    in.sequences[row] = -1;
  }
  for (int s = step.sequences; s <= size.sequences; ++s)
    in.row_starts[s] = step.rows;
  for (int s = step.sequences; s < size.sequences; ++s)
    in.slots[s] = 0;
  for (int i = step.logit_rows; i < size.logit_rows; ++i)
    in.picks[i] = 0;

  Bucket& bucket = ready_bucket(size);
  memory.upload(stream, in);
  run(bucket);
  const auto vocab = static_cast<std::size_t>(model_config.vocab_size);
  const bool picked = size.logit_rows < size.rows;
  for (const auto& [index, part] : first_wanted) {
    const auto row =
        static_cast<std::size_t>(picked ? index : in.picks[static_cast<std::size_t>(index)]);
    memory.fetch(stream, memory.buffers().logits + row * vocab,
                 std::as_writable_bytes(
                     std::span(part->logits, static_cast<std::size_t>(part->wanted) * vocab)));
  }
  if (first_wanted.empty()) stream.synchronize();
  for (Part& part : parts) {
    SequenceRecord& r = *part.record;
    r.length += static_cast<std::int64_t>(part.tokens.size());
    r.rollback_floor = std::max(r.rollback_floor, r.length - kMostRollback);
  }
}

DeviceEngine::DeviceEngine(cu::Context context, ModelConfig config, executor::DeviceWeights weights,
                           KernelSource source, const DeviceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(context), std::move(config), std::move(weights),
                                   std::move(source), options)) {}

DeviceEngine::~DeviceEngine() = default;

const ModelConfig& DeviceEngine::config() const {
  return impl_->model_config;
}

std::int64_t DeviceEngine::max_context() const {
  return impl_->max_context;
}

SequenceId DeviceEngine::create_sequence() {
  const auto made = impl_->table.create();
  if (!made) {
    refuse(ErrorCode::exhausted,
           fmt::format("beginning a sequence: all {} places are taken; release one, or start with "
                       "more",
                       impl_->table.slots()));
  }
  return *made;
}

SequenceId DeviceEngine::fork(SequenceId sequence) {
  const int from = impl_->record(sequence, "copying a sequence").slot;
  const auto made = impl_->table.fork(sequence);
  if (!made) {
    refuse(ErrorCode::exhausted,
           fmt::format("copying sequence {}: all {} places are taken; release one, or start with "
                       "more",
                       number(sequence), impl_->table.slots()));
  }
  const SequenceRecord& copy = *impl_->table.find(*made);
  impl_->state.copy_slot(impl_->stream, from, copy.slot);
  impl_->state.write_csa_row(impl_->stream, copy.slot, 0, copy.csa_pages);
  impl_->state.write_hca_row(impl_->stream, copy.slot, 0, copy.hca_pages);
  return *made;
}

void DeviceEngine::release(SequenceId sequence) {
  impl_->table.release(sequence);
}

std::int64_t DeviceEngine::length(SequenceId sequence) const {
  return impl_->record(sequence, "asking for a sequence's length").length;
}

void DeviceEngine::rollback(SequenceId sequence, std::int64_t length) {
  SequenceRecord& r = impl_->record(sequence, "going back in a sequence");
  if (length < r.rollback_floor || length > r.length) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("going back in sequence {} from {} to {} tokens: {} to {} are possible",
                       number(sequence), r.length, length, r.rollback_floor, r.length));
  }
  r.length = length;
}

std::int64_t DeviceEngine::max_rollback() const {
  return kMostRollback;
}

std::optional<EngineCounts> DeviceEngine::counts() const {
  return EngineCounts{.steps = impl_->counted.steps,
                      .graph_steps = impl_->counted.graph_steps,
                      .kernels_compiled = impl_->source.kernels->stats().compiled};
}

std::vector<StepLogits> DeviceEngine::step(std::span<const SequenceStep> batch) {
  impl_->check(batch);
  std::vector<StepLogits> results(batch.size());
  for (const SequenceStep& one : batch) {
    SequenceRecord& r = *impl_->table.find(one.sequence);
    impl_->grow(r, r.length + static_cast<std::int64_t>(one.tokens.size()));
  }
  for (auto& pass : impl_->plan(batch, results))
    impl_->run_pass(pass);
  return results;
}

DeviceStats DeviceEngine::stats() const {
  DeviceStats stats = impl_->counted;
  stats.buckets = static_cast<int>(impl_->buckets.size());
  const executor::StateSizes& pages = impl_->state.sizes();
  stats.pages_in_use = pages.csa_pages - impl_->table.free_csa_pages() + pages.hca_pages -
                       impl_->table.free_hca_pages();
  stats.kernels_compiled = impl_->source.kernels->stats().compiled;
  stats.buffer_bytes = executor::StepMemory::bytes(impl_->model_config, 1, impl_->max_context) +
                       impl_->scratch.bytes();
  std::vector<kernels::u32> counts(executor::StepInputs::kMostRows);
  impl_->memory.fetch(impl_->stream, impl_->memory.buffers().nan_counts,
                      std::as_writable_bytes(std::span(counts)));
  for (const kernels::u32 count : counts)
    stats.nan_scores += count;
  return stats;
}

}  // namespace ingot
