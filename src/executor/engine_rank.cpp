#include "src/executor/engine_rank.hpp"

#include <thread>
#include <utility>

#include "src/executor/batch_free_kernels.hpp"
#include "src/plan/step_kernels.hpp"

namespace ingot::executor {
namespace {

/// Of the card's memory, that nothing takes ahead of time: half of what the memory plan reserves
/// for code, graphs and scratch stays for steps that nobody foresaw.
constexpr std::uint64_t kLeftFree = std::uint64_t{1} << 29;

cu::Context made_current(cu::Context context) {
  context.make_current();
  return context;
}

}  // namespace

EngineRank::EngineRank(int rank, int ranks, DeviceRank parts, const ModelConfig& model,
                       const DeviceOptions& given, std::int64_t longest, int step_rows,
                       KernelSource& source)
    : tp_rank(rank),
      tp_size(ranks),
      context(made_current(std::move(parts.context))),
      config(model),
      options(given),
      max_context(longest),
      weights(std::move(parts.weights)),
      stream(cu::Stream::create(context)),
      beside(cu::Stream::create(context)),
      reached(cu::Event::create(context, cu::Event::Timing::off)),
      forked(cu::Event::create(context, cu::Event::Timing::off)),
      joined(cu::Event::create(context, cu::Event::Timing::off)),
      memory(context, stream, config, tp_size, max_context, step_rows),
      scratch(context, stream),
      library(context, *source.kernels, source.records.get(),
              TuningScope{.device = source.device, .tp_size = tp_size, .policy = source.policy},
              source.overrides) {
  if (tp_size > 1) {
    links.emplace(context, stream, config, tp_rank, tp_size, step_rows, options.peer_limit_ms);
  }
  stream.synchronize();
}

EngineRank::~EngineRank() {
  try {
    stream.synchronize();
    beside.synchronize();  // a step that failed half-way has not joined it
  } catch (const EngineError&) {
    // The device is lost; what is left is to free what the driver still lets us free.
  }
}

void EngineRank::make_state(const StateSizes& sizes) {
  state.emplace(context, config, sizes);
}

bool EngineRank::is_ready(const StepBucket& size) const {
  const auto known = buckets.find(size);
  if (known == buckets.end()) return false;
  return !options.graphs || !known->second.ran || known->second.graph.has_value();
}

StepKernels EngineRank::want(const StepBucket& size) {
  const bool one_shot = links && links->has_nccl();
  return size.batch_free
             ? want_batch_free(library, config, tp_size, size, one_shot)
             : StepKernels::want(library, config, step_problems(config, tp_size, size, one_shot));
}

void EngineRank::add_bucket(const StepBucket& size, const StepKernels& kernels) {
  const auto scratch_memory = scratch.take(scratch_of(library, kernels, size));
  buckets.emplace(size, Bucket{.program = StepProgram(config, size, kernels, library, weights,
                                                      *state, memory.buffers(), scratch_memory,
                                                      links ? &*links : nullptr),
                               .graph = std::nullopt});
}

void EngineRank::queue(const StepProgram& program) {
  program.launch(StepStreams{.main = stream, .beside = beside, .forked = forked, .joined = joined});
}

// A first launch may make the driver allocate, which all cards that reach this one's memory have to
// learn: it waits for their kernels, and these wait for this rank. A graph has everything before it
// is launched. NCCL sets itself up in the first launch, which is none to record.
bool EngineRank::records_at_once() const {
  return options.graphs && links && !links->has_nccl();
}

void EngineRank::record(Bucket& bucket) {
  const std::uint64_t free_before = context.free_bytes();
  cu::Capture capture(stream);
  queue(bucket.program);
  bucket.graph = cu::GraphExec::instantiate(capture.finish());
  bucket.graph->upload(stream);
  const std::uint64_t free_after = context.free_bytes();
  graph_bytes += free_before > free_after ? free_before - free_after : 0;
  ++graphs;
}

void EngineRank::make_ready(const StepBucket& size) {
  const auto known = buckets.find(size);
  if (known == buckets.end()) {
    const StepKernels kernels = want(size);
    library.prepare(kernels.all, options.jobs);
    add_bucket(size, kernels);
    if (records_at_once()) record(buckets.at(size));
    return;
  }
  Bucket& bucket = known->second;
  if (options.graphs && bucket.ran && !bucket.graph) record(bucket);
}

bool EngineRank::is_prepared(const StepBucket& size) const {
  const auto known = buckets.find(size);
  if (known == buckets.end()) return false;
  const bool records = options.graphs && (!links || records_at_once());
  return !records || known->second.graph.has_value();
}

bool EngineRank::prepare(const StepBucket& size) {
  if (context.free_bytes() < kLeftFree) return false;
  if (!buckets.contains(size)) {
    const StepKernels kernels = want(size);
    if (!library.prepare_compiled(kernels.all, options.jobs)) return false;
    add_bucket(size, kernels);
  }
  if (!is_prepared(size)) record(buckets.at(size));
  return true;
}

void EngineRank::launch(const StepBucket& size) {
  Bucket& bucket = buckets.at(size);
  ++steps;
  if (bucket.graph) {
    bucket.graph->launch(stream);
    ++graph_steps;
    return;
  }
  queue(bucket.program);
  bucket.ran = true;
}

void EngineRank::await_nccl() {
  // NCCL waits without end for a rank that is gone; taking the communicator down ends it, once no
  // graph holds it any more.
  reached.record(stream);
  while (!reached.is_done()) {
    if (links->is_stopped()) {
      buckets.clear();
      links->drop_nccl();
      return;
    }
    links->nccl().throw_if_failed();
    std::this_thread::yield();
  }
}

void EngineRank::finish() {
  if (!links) {
    stream.synchronize();
    return;
  }
  if (links->has_nccl()) await_nccl();
  stream.synchronize();
  links->throw_if_stopped();
}

void EngineRank::apply(const StateChanges& changes) {
  for (const StateChange& change : changes.all()) {
    switch (change.kind) {
      case StateChange::Kind::copy_slot:
        state->copy_slot(stream, change.from, change.to);
        break;
      case StateChange::Kind::copy_csa_page:
        state->copy_csa_page(stream, change.from, change.to);
        break;
      case StateChange::Kind::copy_hca_page:
        state->copy_hca_page(stream, change.from, change.to);
        break;
      case StateChange::Kind::write_csa_row:
        state->write_csa_row(stream, change.to, change.first, changes.pages_of(change));
        break;
      case StateChange::Kind::write_hca_row:
        state->write_hca_row(stream, change.to, change.first, changes.pages_of(change));
        break;
    }
  }
}

}  // namespace ingot::executor
