#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "runtime/cuda/stream.hpp"
#include "src/executor/device_engine_impl.hpp"
#include "src/executor/step_trace.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 3;  // as it is, recorded, and replayed once

/// Times summed by name.
class Parts {
 public:
  void add(const executor::StepLaunch& launch, double us) {
    auto& part = parts_[std::string(launch.name)];
    part.name = launch.name;
    part.kernel = launch.kernel == nullptr ? "NCCL" : launch.kernel->variant;
    if (launch.kernel != nullptr) {
      part.choice = source_name(launch.kernel->source);
      if (launch.kernel->forced) part.choice += ", forced";
    }
    part.us += us;
    ++part.launches;
  }
  /// The largest first.
  std::vector<DecodeTiming::Part> sorted() const {
    std::vector<DecodeTiming::Part> list;
    for (const auto& [name, part] : parts_)
      list.push_back(part);
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
    return list;
  }

 private:
  std::map<std::string, DecodeTiming::Part> parts_;
};

/// Each kind of launch in a graph of its own, one after another through all layers. Every rank does
/// the same at the same time.
std::vector<DecodeTiming::Part> time_alone(executor::EngineRanks& ranks, executor::EngineRank& rank,
                                           const executor::StepProgram& program) {
  if (rank.links && rank.links->has_nccl()) return {};  // parts of an exchange need each other
  std::map<std::string, std::vector<const executor::StepLaunch*>> kinds;
  for (const executor::StepLaunch& launch : program.launches())
    kinds[std::string(launch.name)].push_back(&launch);
  auto begin = cu::Event::create(rank.context, cu::Event::Timing::on);
  auto end = cu::Event::create(rank.context, cu::Event::Timing::on);
  Parts parts;
  for (const auto& [name, launches] : kinds) {
    ranks.meet();  // nobody records while another rank's launches may wait for this one's
    cu::Capture capture(rank.stream);
    for (const executor::StepLaunch* launch : launches)
      program.launch_one(rank.stream, *launch);
    const auto graph = cu::GraphExec::instantiate(capture.finish());
    graph.upload(rank.stream);
    rank.stream.synchronize();
    ranks.meet();  // what graphs take is allocated: that would wait for exchanges of other ranks
    constexpr int kRounds = 3;
    graph.launch(rank.stream);
    begin.record(rank.stream);
    for (int i = 0; i < kRounds; ++i)
      graph.launch(rank.stream);
    end.record(rank.stream);
    rank.finish();
    const double us = static_cast<double>(end.us_since(begin)) / kRounds;
    for (const executor::StepLaunch* launch : launches)
      parts.add(*launch, us / static_cast<double>(launches.size()));
  }
  return parts.sorted();
}

}  // namespace

void DeviceEngine::fill_context() {
  impl_->ranks.run([](executor::EngineRank& rank) { rank.state->fill(rank.stream); });
}

SequenceId DeviceEngine::create_filled(std::int64_t length) {
  const SequenceId sequence = create_sequence();
  auto& record = impl_->record(sequence, "filling a sequence");
  if (length < 0 || length >= impl_->max_context) {
    release(sequence);
    throw EngineError(ErrorCode::invalid_argument,
                      "filling a sequence: its length must leave room in the context");
  }
  if (impl_->table.csa_pages_needed(record, length) > impl_->table.free_csa_pages() ||
      impl_->table.hca_pages_needed(record, length) > impl_->table.free_hca_pages()) {
    release(sequence);
    throw EngineError(ErrorCode::exhausted,
                      "filling a sequence: too few pages of context are left for it");
  }
  impl_->grow(record, length);
  record.length = record.rollback_floor = length;
  impl_->apply_changes();
  return sequence;
}

DecodeTiming DeviceEngine::time_decode(std::span<const SequenceId> sequences, int steps) {
  Impl& e = *impl_;
  std::vector<executor::SequenceRecord*> records;
  std::int64_t longest = 0;
  for (const SequenceId id : sequences) {
    records.push_back(&e.record(id, "timing a step"));
    longest = std::max(longest, records.back()->length);
  }
  const int rows = static_cast<int>(records.size());
  const int all_steps = timed_decode_tokens(steps);
  const StepBucket size = bucket_of({.rows = rows,
                                     .sequences = rows,
                                     .sequence_rows = 1,
                                     .logit_rows = rows,
                                     .context = longest + all_steps,
                                     .batch_free = e.deterministic},
                                    e.model_config.max_position_embeddings);
  for (auto* record : records)
    e.grow(*record, record->length + all_steps);
  e.apply_changes();
  // Every rank makes the same inputs of step `n`.
  const auto prepare = [&](executor::EngineRank& rank, executor::StepInputs& in, int n) {
    for (int r = 0; r < size.rows; ++r) {
      const bool live = r < rows;
      const std::uint32_t token =
          (static_cast<std::uint32_t>(n * size.rows + r) + 1) * 1664525U + 1013904223U;
      in.ids(size.rows)[r] = live ? static_cast<int>((token >> 8) % static_cast<std::uint32_t>(
                                                                        e.model_config.vocab_size))
                                  : 0;
      auto* record = live ? records[static_cast<std::size_t>(r)] : nullptr;
      in.positions(size.rows)[r] = live ? static_cast<int>(record->length) + n : 0;
      in.sequences(size.rows)[r] = live ? record->slot : -1;
      in.row_starts[r] = std::min(r, rows);
      in.slots[r] = live ? record->slot : 0;
      in.picks[r] = r;
    }
    in.row_starts[size.rows] = rows;
    rank.memory.upload(rank.stream, in, size.rows);
  };
  std::vector<executor::StepInputs> inputs(e.ranks.size());
  const auto run = [&](executor::EngineRank& rank, int n) {
    prepare(rank, inputs[static_cast<std::size_t>(rank.tp_rank)], n);
    rank.launch(size);
  };
  int done = 0;
  for (; done < kWarmUp; ++done) {
    e.make_ready(size);
    e.ranks.run([&](executor::EngineRank& rank) {
      run(rank, done);
      rank.finish();
    });
  }
  DecodeTiming timing;
  double experts = 0;
  int layers = 0;
  e.ranks.run([&](executor::EngineRank& rank) {
    const executor::Bucket& bucket = rank.buckets.at(size);
    const auto& launches = bucket.program.launches();
    auto begin = cu::Event::create(rank.context, cu::Event::Timing::on);
    auto end = cu::Event::create(rank.context, cu::Event::Timing::on);
    const auto queued_from = Clock::now();
    begin.record(rank.stream);
    int n = done;
    for (const int last = n + steps; n < last; ++n)
      run(rank, n);
    end.record(rank.stream);
    const std::chrono::duration<double, std::micro> queueing = Clock::now() - queued_from;
    rank.finish();
    const double step_us = static_cast<double>(end.us_since(begin)) / steps;
    std::vector<DecodeTiming::Part> path;
    e.ranks.meet();
    if (executor::StepTrace trace(rank.context, rank.stream); trace.attach(bucket.program)) {
      e.ranks.meet();
      for (const int last = n + steps; n < last; ++n)
        run(rank, n);
      rank.finish();
      const std::vector<double> us = trace.read();
      Parts parts;
      for (std::size_t i = 0; i < us.size(); ++i)
        parts.add(launches[trace.launches()[i]], us[i]);
      path = parts.sorted();
    }
    auto parts = time_alone(e.ranks, rank, bucket.program);
    e.ranks.meet();
    prepare(rank, inputs[static_cast<std::size_t>(rank.tp_rank)], n);
    for (const executor::StepLaunch& launch : launches) {
      bucket.program.launch_one(rank.stream, launch);
      const bool chooses =
          std::any_of(launch.outputs.begin(), launch.outputs.end(),
                      [&](const auto& o) { return o.at == rank.memory.buffers().experts; });
      if (!chooses || rank.tp_rank != 0) continue;
      std::vector<int> ids(static_cast<std::size_t>(rows * e.model_config.experts_per_token));
      rank.memory.fetch(rank.stream, rank.memory.buffers().experts,
                        std::as_writable_bytes(std::span(ids)));
      experts += static_cast<double>(std::set<int>(ids.begin(), ids.end()).size());
      ++layers;
    }
    rank.finish();
    if (rank.tp_rank != 0) return;
    timing.step_us = step_us;
    timing.queue_us = queueing.count() / steps;
    timing.launches = static_cast<int>(launches.size());
    timing.from_graph = bucket.graph.has_value();
    timing.path = std::move(path);
    timing.parts = std::move(parts);
  });
  for (auto* record : records)
    record->length += all_steps;
  timing.experts_read = layers > 0 ? experts / layers : 0;
  return timing;
}

PassTiming DeviceEngine::time_newest_pass() {
  Impl& e = *impl_;
  PassTiming timing;
  if (!e.newest) return timing;
  timing.rows = e.newest->rows;
  e.ranks.run([&](executor::EngineRank& rank) {
    const executor::Bucket& bucket = rank.buckets.at(*e.newest);
    auto parts = time_alone(e.ranks, rank, bucket.program);
    rank.finish();
    if (rank.tp_rank != 0) return;
    timing.launches = static_cast<int>(bucket.program.launches().size());
    timing.parts = std::move(parts);
  });
  return timing;
}

}  // namespace ingot
