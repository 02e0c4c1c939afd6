#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "runtime/cuda/stream.hpp"
#include "src/executor/device_engine_impl.hpp"
#include "src/executor/step_trace.hpp"
#include "tuner/measure.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 3;  // the first runs plainly, the second records the graph

std::string choice_of(const executor::ReadyKernel& kernel) {
  return std::string(source_name(kernel.source)) + (kernel.forced ? ", forced" : "");
}

std::vector<DecodeTiming::Part> by_falling_time(
    const std::map<std::string_view, DecodeTiming::Part>& parts) {
  std::vector<DecodeTiming::Part> list;
  for (const auto& [name, part] : parts)
    list.push_back(part);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return list;
}

/// Decode steps of some sequences, whose tokens are made up.
class DecodeSteps {
 public:
  DecodeSteps(DeviceEngine::Impl& engine, std::vector<executor::SequenceRecord*> records,
              executor::Bucket& bucket, int bucket_rows, int bucket_sequences)
      : e_(engine),
        records_(std::move(records)),
        bucket_(bucket),
        bucket_rows_(bucket_rows),
        bucket_sequences_(bucket_sequences) {}

  /// Queues the inputs of the next step.
  void prepare() {
    executor::StepInputs& in = e_.inputs;
    const int live_rows = rows();
    for (int r = 0; r < bucket_rows_; ++r) {
      const bool live = r < live_rows;
      token_ = token_ * 1664525U + 1013904223U;
      const auto vocabulary = static_cast<std::uint32_t>(e_.model_config.vocab_size);
      in.ids[r] = live ? static_cast<int>((token_ >> 8) % vocabulary) : 0;
      auto* record = live ? records_[static_cast<std::size_t>(r)] : nullptr;
      in.positions[r] = live ? static_cast<int>(record->length) : 0;
      in.sequences[r] = live ? record->slot : -1;
      in.picks[r] = r;
      if (live) ++record->length;
    }
    for (int s = 0; s < bucket_sequences_; ++s) {
      in.row_starts[s] = std::min(s, live_rows);
      in.slots[s] = s < live_rows ? records_[static_cast<std::size_t>(s)]->slot : 0;
    }
    in.row_starts[bucket_sequences_] = live_rows;
    e_.memory.upload(e_.stream, in);
  }

  void run() {
    prepare();
    e_.run(bucket_);
  }

  /// One step, launch by launch: distinct experts of a layer, mean.
  double count_experts() {
    prepare();
    double experts = 0;
    int layers = 0;
    for (const executor::StepLaunch& launch : bucket_.program.launches()) {
      queue(launch);
      if (launch.name != "router") continue;
      std::vector<int> ids(static_cast<std::size_t>(rows() * e_.model_config.experts_per_token));
      e_.memory.fetch(e_.stream, e_.memory.buffers().experts,
                      std::as_writable_bytes(std::span(ids)));
      experts += static_cast<double>(std::set<int>(ids.begin(), ids.end()).size());
      ++layers;
    }
    e_.stream.synchronize();
    return layers > 0 ? experts / layers : 0;
  }

  /// What each kind of launch adds to `steps` steps from the graph; empty without traced kernels.
  std::vector<DecodeTiming::Part> trace_path(int steps) {
    executor::StepTrace trace(e_.context, e_.stream);
    if (!trace.attach(bucket_.program)) return {};
    for (int i = 0; i < steps; ++i)
      run();
    const auto& launches = bucket_.program.launches();
    const std::vector<double> us = trace.read(launches.size());
    std::map<std::string_view, DecodeTiming::Part> parts;
    for (std::size_t i = 0; i < us.size(); ++i) {
      DecodeTiming::Part& part = parts[launches[i].name];
      part.name = launches[i].name;
      part.us += us[i];
      ++part.launches;
    }
    return by_falling_time(parts);
  }

  /// Each kind of launch by itself, from a graph of all of them.
  std::vector<DecodeTiming::Part> time_parts() {
    std::map<std::string_view, std::vector<const executor::StepLaunch*>> kinds;
    for (const executor::StepLaunch& launch : bucket_.program.launches())
      kinds[launch.name].push_back(&launch);
    std::map<std::string_view, DecodeTiming::Part> parts;
    for (const auto& [name, launches] : kinds) {
      const int count = static_cast<int>(launches.size());
      const cu::Graph graph = record_nodes(
          e_.stream, count, [&](int node) { queue(*launches[static_cast<std::size_t>(node)]); });
      const MeasurePolicy few{.warmup_replays = 1, .batch_replays = 5, .max_replays = 5};
      const Timing timing = measure(e_.context, e_.stream, graph, few);
      parts[name] = {.name = std::string(name),
                     .kernel = launches.front()->kernel->variant,
                     .choice = choice_of(*launches.front()->kernel),
                     .us = timing.median_us * count,
                     .launches = count};
    }
    return by_falling_time(parts);
  }

 private:
  int rows() const { return static_cast<int>(records_.size()); }
  void queue(const executor::StepLaunch& launch) const {
    cu::launch(e_.stream, launch.kernel->kernel.function(), launch.kernel->shape,
               launch.args.data());
  }

  DeviceEngine::Impl& e_;
  std::vector<executor::SequenceRecord*> records_;
  executor::Bucket& bucket_;
  const int bucket_rows_, bucket_sequences_;
  std::uint32_t token_ = 1;
};

}  // namespace

void DeviceEngine::fill_context() {
  impl_->state.fill(impl_->stream);
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
  impl_->stream.synchronize();
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
  const std::int64_t more = timed_decode_tokens(steps);
  const StepBucket size = bucket_of({.rows = rows,
                                     .sequences = rows,
                                     .sequence_rows = 1,
                                     .logit_rows = rows,
                                     .context = longest + more},
                                    e.model_config.max_position_embeddings);
  executor::Bucket& bucket = e.ready_bucket(size);
  for (auto* record : records)
    e.grow(*record, record->length + more);
  DecodeSteps decode(e, std::move(records), bucket, size.rows, size.sequences);
  for (int i = 0; i < kWarmUp; ++i)
    decode.run();
  e.stream.synchronize();

  DecodeTiming timing;
  timing.launches = static_cast<int>(bucket.program.launches().size());
  auto begin = cu::Event::create(e.context, cu::Event::Timing::on);
  auto end = cu::Event::create(e.context, cu::Event::Timing::on);
  const auto queued_from = Clock::now();
  begin.record(e.stream);
  for (int i = 0; i < steps; ++i)
    decode.run();
  end.record(e.stream);
  const std::chrono::duration<double, std::micro> queueing = Clock::now() - queued_from;
  end.synchronize();
  timing.step_us = static_cast<double>(end.us_since(begin)) / steps;
  timing.queue_us = queueing.count() / steps;
  timing.from_graph = bucket.graph.has_value();
  timing.path = decode.trace_path(steps);
  timing.experts_read = decode.count_experts();
  timing.parts = decode.time_parts();
  return timing;
}

}  // namespace ingot
