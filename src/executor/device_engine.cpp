#include "src/executor/device_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "src/engine/check_step.hpp"
#include "src/executor/device_engine_impl.hpp"
#include "src/executor/memory_costs.hpp"
#include "src/plan/kernel_requests.hpp"

namespace ingot {
namespace {

using executor::SequenceRecord;

[[noreturn]] void refuse(ErrorCode code, std::string message) {
  throw EngineError(code, std::move(message));
}

/// Passes that may be queued at a time. A chunk of a prompt beside running answers is two; what is
/// cut into more waits in between.
constexpr std::size_t kMostQueuedPasses = 4;

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

MemoryWish memory_wish(const DeviceOptions& options, std::int64_t max_context) {
  return {.sequences = options.max_sequences,
          .max_context = max_context,
          .context_tokens = options.context_tokens};
}

/// Room for the state in what weights and buffers have left.
executor::StateSizes state_sizes(const ModelConfig& config, const DeviceOptions& options,
                                 std::int64_t max_context, int step_rows,
                                 std::uint64_t free_bytes) {
  const MemoryPlan plan =
      value_or_throw(plan_memory("starting the device engine beside the weights",
                                 executor::state_memory_costs(config, max_context, step_rows),
                                 memory_wish(options, max_context), free_bytes));
  return {.slots = plan.wish.sequences,
          .csa_pages = plan.csa_pages,
          .hca_pages = plan.hca_pages,
          .max_context = max_context,
          .step_rows = step_rows};
}

void require_step_rows(int rows) {
  if (rows >= kMostNarrowRows && rows <= kMostStepRows &&
      std::has_single_bit(static_cast<unsigned>(rows)))
    return;
  refuse(ErrorCode::invalid_argument,
         fmt::format("starting the device engine: passes of {} rows asked for; powers of two from "
                     "{} to {} are possible",
                     rows, kMostNarrowRows, kMostStepRows));
}

/// All ranks run the same variants of kernels.
void require_same_card(const cu::DeviceInfo& first, const cu::DeviceInfo& other) {
  if (first.name == other.name && first.sm_count == other.sm_count) return;
  refuse(ErrorCode::unsupported,
         fmt::format("starting the device engine: device {} is a {} and device {} a {}; tensor "
                     "parallel ranks need cards of one kind",
                     first.ordinal, first.name, other.ordinal, other.name));
}

}  // namespace

namespace executor {

EngineRanks::EngineRanks(std::vector<DeviceRank> parts, const ModelConfig& config,
                         const DeviceOptions& options, std::int64_t max_context,
                         KernelSource& source)
    : ranks_(parts.size()), threads_(static_cast<int>(parts.size()), [this] { stop(); }) {
  const int size = static_cast<int>(parts.size());
  try {
    require_step_rows(options.step_rows);
    std::vector<std::uint64_t> free(parts.size());
    const auto ranks_on = [&](int ordinal) {
      return static_cast<std::uint64_t>(std::count_if(
          parts.begin(), parts.end(),
          [&](const DeviceRank& other) { return other.context.device().ordinal == ordinal; }));
    };
    threads_.run([&](int rank) {
      const cu::Context& context = parts[static_cast<std::size_t>(rank)].context;
      context.make_current();
      free[static_cast<std::size_t>(rank)] =
          context.free_bytes() / ranks_on(context.device().ordinal);
    });
    const int step_rows =
        step_rows_beside_weights(config, size, memory_wish(options, max_context), options.step_rows,
                                 *std::min_element(free.begin(), free.end()));
    threads_.run([&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      ranks_[at] = std::make_unique<EngineRank>(rank, size, std::move(parts[at]), config, options,
                                                max_context, step_rows, source);
    });
    value_or_throw(kernel_uses(config, {.tp_size = size}, ranks_[0]->library.limits()));
    for (const auto& rank : ranks_)
      require_same_card(ranks_[0]->context.device(), rank->context.device());
    const auto ranks_beside = [&](const EngineRank& rank) {
      return std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& other) {
        return other->context.device().ordinal == rank.context.device().ordinal;
      });
    };
    for (const auto& rank : ranks_) {
      if (ranks_beside(*rank) == 1 || options.shared_card) continue;
      refuse(ErrorCode::unsupported,
             fmt::format("starting the device engine: two tensor parallel ranks on device {}; give "
                         "each a card of its own",
                         rank->context.device().ordinal));
    }
    if (size > 1) connect(options.nccl);
    run([&](EngineRank& rank) {
      const auto on_card = ranks_beside(rank);
      free[static_cast<std::size_t>(rank.tp_rank)] =
          rank.context.free_bytes() / static_cast<std::uint64_t>(on_card);
    });
    const StateSizes sizes = state_sizes(config, options, max_context, step_rows,
                                         *std::min_element(free.begin(), free.end()));
    run([&](EngineRank& rank) { rank.make_state(sizes); });
  } catch (...) {
    take_down();
    throw;
  }
}

EngineRanks::~EngineRanks() {
  take_down();
}

void EngineRanks::connect(std::shared_ptr<const nccl::NcclApi> nccl) {
  std::vector<PeerLinks*> links;
  std::vector<float*> logits;
  std::vector<std::byte*> memory;
  for (const auto& rank : ranks_) {
    links.push_back(&*rank->links);
    logits.push_back(rank->memory.buffers().logits);
    memory.push_back(rank->memory.memory().as<std::byte>());
  }
  if (nccl == nullptr) {
    run([&](EngineRank& rank) { rank.links->connect(links, logits, memory); });
  } else {
    const nccl::ncclUniqueId id = nccl::Comm::make_id(*nccl);
    run([&](EngineRank& rank) {
      rank.links->join(nccl, id, rank.memory.buffers().logits, rank.stream);
    });
  }
  connected_ = true;
}

void EngineRanks::stop() noexcept {
  if (!connected_) return;
  for (const auto& rank : ranks_)
    rank->links->stop();
}

void EngineRanks::take_down() noexcept {
  // No rank's memory goes while another's kernels may still write to it.
  const bool clean = !threads_.failed();
  threads_.run_last([&](int rank) {
    auto& one = ranks_[static_cast<std::size_t>(rank)];
    if (!one) return;
    one->finish();
    one->buckets.clear();
    if (one->links && clean) one->links->finish_nccl();
  });
  connected_ = false;
  threads_.run_last([&](int rank) { ranks_[static_cast<std::size_t>(rank)].reset(); });
}

void EngineRanks::drain() noexcept {
  threads_.run_last([&](int rank) { ranks_[static_cast<std::size_t>(rank)]->finish(); });
}

void EngineRanks::run(FunctionRef<void(EngineRank&)> body) {
  threads_.run([&](int rank) { body(*ranks_[static_cast<std::size_t>(rank)]); });
}

}  // namespace executor

DeviceEngine::Impl::Impl(std::vector<DeviceRank> given_ranks, ModelConfig model, KernelSource from,
                         const DeviceOptions& given)
    : model_config(std::move(model)),
      options(given),
      max_context(checked_context(model_config, given)),
      deterministic(given.deterministic),
      source(std::move(from)),
      ranks(std::move(given_ranks), model_config, options, max_context, source),
      table(ranks[0].state->sizes().slots, ranks[0].state->sizes().csa_pages,
            ranks[0].state->sizes().hca_pages, max_context) {
  const executor::StateSizes& sizes = ranks[0].state->sizes();
  counted.weight_bytes = ranks[0].weights.bytes();
  counted.state_bytes = executor::state_costs(model_config, max_context).bytes(sizes);
  counted.context_tokens =
      sizes.csa_pages > 0 ? sizes.csa_pages * kCsaPageTokens : sizes.hca_pages * kHcaPageTokens;
  while (passes.size() < kMostQueuedPasses)
    passes.emplace_back(ranks[0].context, table.slots());
  reserve_step();
}

DeviceEngine::Impl::~Impl() {
  ranks.drain();  // no copy from the passes' memory may be under way when it goes
}

SequenceRecord& DeviceEngine::Impl::record(SequenceId sequence, const char* attempt) {
  SequenceRecord* found = table.find(sequence);
  if (found == nullptr) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: there is no sequence {}", attempt, number(sequence)));
  }
  return *found;
}

void DeviceEngine::Impl::reserve_step() {
  const auto most = static_cast<std::size_t>(table.slots());
  batch_ids.reserve(most);
  records.reserve(most);
  results.reserve(most);
  parts.reserve(most);
  pass_ends.reserve(most);
  changes.reserve(2 * most);
}

void DeviceEngine::Impl::check(std::span<const SequenceStep> batch) {
  records.clear();
  const auto length = [&](SequenceId sequence) {
    records.push_back(&record(sequence, "running a step"));
    return records.back()->length;
  };
  check_step(batch, model_config.vocab_size, max_context, length, batch_ids);
  int csa = 0, hca = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SequenceRecord& r = *records[i];
    const std::int64_t end = r.length + static_cast<std::int64_t>(batch[i].tokens.size());
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
  using executor::PageCopy;
  using Kind = executor::StateChange::Kind;
  const std::size_t csa = table.grow_csa(
      r, length, [&](PageCopy one) { changes.copy(Kind::copy_csa_page, one.from, one.to); });
  if (csa < r.csa_pages.size()) changes.write_row(Kind::write_csa_row, r.slot, csa, r.csa_pages);
  const std::size_t hca = table.grow_hca(
      r, length, [&](PageCopy one) { changes.copy(Kind::copy_hca_page, one.from, one.to); });
  if (hca < r.hca_pages.size()) changes.write_row(Kind::write_hca_row, r.slot, hca, r.hca_pages);
}

void DeviceEngine::Impl::apply_changes() {
  if (changes.empty()) return;
  ranks.run([&](EngineRank& rank) {
    rank.apply(changes);
    rank.finish();
  });
  changes.clear();
}

void DeviceEngine::Impl::plan(std::span<const SequenceStep> batch) {
  const auto vocab = static_cast<std::size_t>(model_config.vocab_size);
  parts.clear();
  pass_ends.clear();
  const int most_rows = deterministic ? kBatchFreeRows : step_rows();
  std::int64_t left = 0;  // rows that are in no pass yet
  for (const SequenceStep& step : batch)
    left += static_cast<std::int64_t>(step.tokens.size());
  std::int64_t rows = 0, room = 0, logit_rows = 0;  // of the newest pass
  std::size_t begin_of_pass = 0;
  const auto end_pass = [&] {
    if (parts.size() > begin_of_pass) pass_ends.push_back(parts.size());
    begin_of_pass = parts.size();
    rows = logit_rows = 0;
    room = next_pass_rows(left, most_rows);
  };
  end_pass();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto tokens = static_cast<std::int64_t>(batch[i].tokens.size());
    StepLogits& result = results[i];
    const bool sampled = takes(batch[i]);
    const int wanted_rows = batch[i].logits == LogitsOf::none   ? 0
                            : batch[i].logits == LogitsOf::last ? 1
                                                                : static_cast<int>(tokens);
    result.rows = sampled ? 0 : wanted_rows;
    result.values.resize(static_cast<std::size_t>(result.rows) * vocab);
    result.sampled.reset();
    for (std::int64_t begin = 0; begin < tokens;) {
      const std::int64_t first = std::max(begin, tokens - wanted_rows);
      if (begin > 0 || rows == room || parts.size() - begin_of_pass == kMostStepSequences ||
          (first == begin && wanted_rows > 0 && logit_rows == kMostLogitRows)) {
        end_pass();
      }
      const std::int64_t count =
          std::min({tokens - begin, room - rows, first - begin + kMostLogitRows - logit_rows});
      const std::int64_t wanted = std::max<std::int64_t>(0, begin + count - first);
      const auto at = static_cast<std::size_t>(first - (tokens - wanted_rows)) * vocab;
      parts.push_back({.record = records[i],
                       .tokens = batch[i].tokens.subspan(static_cast<std::size_t>(begin),
                                                         static_cast<std::size_t>(count)),
                       .logits = wanted > 0 && !sampled ? result.values.data() + at : nullptr,
                       .wanted = wanted,
                       .sample = sampled && wanted > 0 ? batch[i].sample : std::nullopt,
                       .result = &result});
      begin += count;
      rows += count;
      left -= count;
      logit_rows += wanted;
    }
  }
  end_pass();
}

bool DeviceEngine::Impl::is_ready(const StepBucket& size) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].is_ready(size)) return false;
  }
  return true;
}

void DeviceEngine::Impl::make_ready(const StepBucket& size) {
  if (is_ready(size)) return;
  ranks.run([&](EngineRank& rank) { rank.make_ready(size); });
}

DeviceEngine::DeviceEngine(cu::Context context, ModelConfig config, executor::DeviceWeights weights,
                           KernelSource source, const DeviceOptions& options)
    : impl_([&] {
        std::vector<DeviceRank> ranks;
        ranks.push_back({std::move(context), std::move(weights)});
        return std::make_unique<Impl>(std::move(ranks), std::move(config), std::move(source),
                                      options);
      }()) {}

DeviceEngine::DeviceEngine(std::vector<DeviceRank> ranks, ModelConfig config, KernelSource source,
                           const DeviceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(ranks), std::move(config), std::move(source),
                                   options)) {}

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
  using Kind = executor::StateChange::Kind;
  impl_->changes.copy(Kind::copy_slot, from, copy.slot);
  impl_->changes.write_row(Kind::write_csa_row, copy.slot, 0, copy.csa_pages);
  impl_->changes.write_row(Kind::write_hca_row, copy.slot, 0, copy.hca_pages);
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
  return EngineCounts{.steps = impl_->ranks[0].steps,
                      .graph_steps = impl_->ranks[0].graph_steps,
                      .kernels_compiled = impl_->source.kernels->stats().compiled};
}

void DeviceEngine::set_deterministic(bool on) {
  impl_->deterministic = on;
}

std::optional<EngineRoom> DeviceEngine::room() const {
  const executor::StateSizes& pages = impl_->ranks[0].state->sizes();
  const std::int64_t total = pages.csa_pages + pages.hca_pages;
  return EngineRoom{.used = total - impl_->table.free_csa_pages() - impl_->table.free_hca_pages(),
                    .total = total};
}

void DeviceEngine::launch(std::span<const SequenceStep> batch) {
  Impl& e = *impl_;
  if (e.under_way) {
    refuse(ErrorCode::invalid_argument, "beginning a step: the one before it has not ended");
  }
  e.check(batch);
  e.results.resize(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    SequenceRecord& r = *e.records[i];
    e.grow(r, r.length + static_cast<std::int64_t>(batch[i].tokens.size()));
  }
  e.plan(batch);
  try {
    std::size_t begin = 0;
    for (const std::size_t end : e.pass_ends) {
      e.queue_pass(std::span(e.parts).subspan(begin, end - begin));
      begin = end;
    }
  } catch (...) {
    e.ranks.drain();
    e.queued = 0;
    throw;
  }
  e.under_way = true;
}

std::span<StepLogits> DeviceEngine::finish() {
  if (!std::exchange(impl_->under_way, false)) {
    refuse(ErrorCode::invalid_argument, "ending a step: none is under way");
  }
  impl_->collect();
  return impl_->results;
}

std::vector<StepLogits> DeviceEngine::step(std::span<const SequenceStep> batch) {
  launch(batch);
  const std::span<StepLogits> brought = finish();
  return {std::make_move_iterator(brought.begin()), std::make_move_iterator(brought.end())};
}

NumericFaults DeviceEngine::numeric_faults() const {
  const DeviceStats now = stats();
  return {.nan_rows = now.nan_rows, .nan_scores = now.nan_scores};
}

DeviceStats DeviceEngine::stats() const {
  executor::EngineRank& rank = impl_->ranks[0];
  DeviceStats stats = impl_->counted;
  stats.steps = rank.steps;
  stats.graph_steps = rank.graph_steps;
  stats.buckets = static_cast<int>(rank.buckets.size());
  stats.graphs = rank.graphs;
  stats.graph_bytes = rank.graph_bytes;
  stats.pages_in_use = static_cast<int>(room()->used);
  stats.kernels_compiled = impl_->source.kernels->stats().compiled;
  stats.step_rows = impl_->step_rows();
  stats.buffer_bytes = executor::StepMemory::bytes(impl_->model_config, rank.tp_size,
                                                   impl_->max_context, stats.step_rows) +
                       rank.scratch.bytes();
  std::vector<kernels::u32> counts(static_cast<std::size_t>(stats.step_rows));
  rank.memory.fetch(rank.stream, rank.memory.buffers().nan_counts,
                    std::as_writable_bytes(std::span(counts)));
  for (const kernels::u32 count : counts)
    stats.nan_scores += count;
  return stats;
}

}  // namespace ingot
