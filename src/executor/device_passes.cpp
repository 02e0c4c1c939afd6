// Passes of the device engine: what a rank is given for one, and what comes back.
#include <algorithm>
#include <new>
#include <utility>

#include "src/executor/device_engine_impl.hpp"

namespace ingot {
namespace executor {
namespace {

constexpr std::size_t kSamplesAt = (sizeof(StepInputs) + 255) / 256 * 256;

}  // namespace

QueuedPass::QueuedPass(const cu::Context& context, int sequences)
    : memory_(cu::PinnedBuffer::allocate(
          context, kSamplesAt + kMostLogitRows * sizeof(kernels::SampleResult))) {
  std::byte* const at = memory_.bytes().data();
  inputs_at_ = new (at) StepInputs{};
  samples_at_ = new (at + kSamplesAt) kernels::SampleResult[kMostLogitRows]{};
  wanted.reserve(static_cast<std::size_t>(std::min(sequences, kMostStepSequences)));
  changes.reserve(2 * static_cast<std::size_t>(sequences));
}

}  // namespace executor

void DeviceEngine::Impl::fill_inputs(QueuedPass& pass, std::span<Part> of, const StepBucket& step,
                                     const StepBucket& size) {
  executor::StepInputs& in = pass.inputs();
  int* const ids = in.ids(size.rows);
  int* const positions = in.positions(size.rows);
  int* const sequences = in.sequences(size.rows);
  pass.wanted.clear();
  int at = 0, logit_row = 0;
  for (std::size_t p = 0; p < of.size(); ++p) {
    Part& part = of[p];
    const SequenceRecord& r = *part.record;
    in.row_starts[p] = at;
    in.slots[p] = r.slot;
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    for (std::int64_t t = 0; t < count; ++t) {
      ids[at] = part.tokens[static_cast<std::size_t>(t)];
      positions[at] = static_cast<int>(r.length + t);
      sequences[at] = r.slot;
      if (t >= count - part.wanted) {
        if (t == count - part.wanted) pass.wanted.push_back({logit_row, &part});
        in.picks[logit_row++] = at;
      }
      ++at;
    }
  }
  for (; at < size.rows; ++at) {
    ids[at] = 0;
    positions[at] = 0;
    sequences[at] = -1;
  }
  for (int s = step.sequences; s <= size.sequences; ++s)
    in.row_starts[s] = step.rows;
  for (int s = step.sequences; s < size.sequences; ++s)
    in.slots[s] = 0;
  for (int i = step.logit_rows; i < size.logit_rows; ++i)
    in.picks[i] = 0;

  // Where the logits of all rows are there, they lie by the rows of the step.
  if (size.logit_rows == size.rows) {
    for (LogitRow& one : pass.wanted)
      one.row = in.picks[one.row];
  }
  set_samples(pass, size.sampled ? size.logit_rows : 0);
}

void DeviceEngine::Impl::queue_pass(std::span<Part> of) {
  StepBucket step{.rows = 0,
                  .sequences = static_cast<int>(of.size()),
                  .sequence_rows = 1,
                  .logit_rows = 0,
                  .context = 1,
                  .batch_free = deterministic};
  for (const Part& part : of) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    step.rows += static_cast<int>(count);
    step.logit_rows += static_cast<int>(part.wanted);
    step.sequence_rows = std::max(step.sequence_rows, static_cast<int>(count));
    step.context = std::max(step.context, part.record->length + count);
    step.sampled |= part.sample.has_value();
  }
  const StepBucket size = bucket_of(step, model_config.max_position_embeddings);
  // Logits lie where the next pass writes its own; and nothing may run while kernels are loaded and
  // graphs recorded.
  const auto brings_logits = [](const QueuedPass& pass) {
    return std::ranges::any_of(pass.wanted, [](const LogitRow& one) { return !one.part->sample; });
  };
  if (queued > 0 &&
      (queued == passes.size() || brings_logits(passes[queued - 1]) || !is_ready(size))) {
    collect();
  }
  QueuedPass& pass = passes[queued];
  fill_inputs(pass, of, step, size);
  make_ready(size);
  pass.changes.clear();
  std::swap(pass.changes, changes);
  ++queued;
  ranks.run([&](EngineRank& rank) {
    rank.apply(pass.changes);
    rank.memory.upload(rank.stream, pass.inputs(), size.rows, pass.sample_rows);
    if (rank.tp_rank == 0) {
      pass.adjustments.upload(rank.memory, rank.stream, model_config.vocab_size);
    }
    rank.launch(size);
    if (rank.tp_rank == 0 && pass.sample_rows > 0) {
      const auto chosen = pass.samples().first(static_cast<std::size_t>(pass.sample_rows));
      rank.memory.get(rank.stream, rank.memory.buffers().samples, std::as_writable_bytes(chosen));
    }
  });
  newest = size;
  for (Part& part : of) {
    SequenceRecord& r = *part.record;
    r.length += static_cast<std::int64_t>(part.tokens.size());
    r.rollback_floor = std::max(r.rollback_floor, r.length - kMostRollback);
  }
}

void DeviceEngine::Impl::collect() {
  const auto over = std::span(passes).first(std::exchange(queued, 0));
  if (over.empty()) return;
  ranks.run([](EngineRank& rank) { rank.finish(); });
  const auto vocab = static_cast<std::size_t>(model_config.vocab_size);
  const EngineRank& first = ranks[0];
  for (QueuedPass& pass : over) {
    for (const auto& [row, part] : pass.wanted) {
      if (part->sample) continue;
      const std::span logits(part->logits, static_cast<std::size_t>(part->wanted) * vocab);
      first.memory.fetch(first.stream,
                         first.memory.buffers().logits + static_cast<std::size_t>(row) * vocab,
                         std::as_writable_bytes(logits));
      count_nan_rows(logits);
    }
    if (pass.sample_rows > 0) take_samples(pass);
  }
}

}  // namespace ingot
