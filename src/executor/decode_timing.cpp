#include <algorithm>
#include <map>
#include <set>

#include "kernel_templates/moe_weight_tiles.hpp"
#include "kernel_templates/rope_kv_append.args.h"
#include "runtime/cuda/stream.hpp"
#include "src/executor/device_engine_impl.hpp"
#include "src/executor/step_trace.hpp"

namespace ingot {
namespace {

std::uint64_t product(std::int64_t a, std::int64_t b) {
  return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
}
std::uint64_t bytes_of(const executor::Fp8Matrix& m) {
  return product(m.rows, m.cols);
}
std::uint64_t bytes_of(const executor::Bf16Matrix& m) {
  return 2 * product(m.rows, m.cols);
}

/// What every step reads of a layer, but for the routed experts.
std::uint64_t layer_bytes(const ModelConfig& config, const executor::Layer& layer) {
  std::uint64_t bytes = 2 * product(24 * 4, 4 * config.hidden_size);  // both mixes, fp32
  for (const auto* m :
       {&layer.wq_a, &layer.wkv, &layer.wq_b, &layer.wo_a, &layer.wo_b, &layer.indexer.wq_b,
        &layer.experts.shared_gate, &layer.experts.shared_up, &layer.experts.shared_down})
    bytes += bytes_of(*m);
  for (const auto* m :
       {&layer.compressor.wkv, &layer.compressor.wgate, &layer.indexer.weights_proj,
        &layer.indexer.compressor.wkv, &layer.indexer.compressor.wgate, &layer.experts.gate})
    bytes += bytes_of(*m);
  return bytes;
}

/// Times summed by name.
class Parts {
 public:
  void add(std::string_view name, double us) {
    auto& part = parts_[std::string(name)];
    part.name = name;
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

/// Each kind of launch in a graph of its own, one after another through all layers.
std::vector<DecodeTiming::Part> time_alone(DeviceEngine::Impl& e, const executor::Bucket& bucket) {
  std::map<std::string, std::vector<const executor::StepLaunch*>> kinds;
  for (const executor::StepLaunch& launch : bucket.program.launches())
    kinds[std::string(launch.name)].push_back(&launch);
  auto begin = cu::Event::create(e.context, cu::Event::Timing::on);
  auto end = cu::Event::create(e.context, cu::Event::Timing::on);
  Parts parts;
  for (const auto& [name, launches] : kinds) {
    cu::Capture capture(e.stream);
    for (const executor::StepLaunch* launch : launches)
      cu::launch(e.stream, launch->kernel->kernel.function(), launch->kernel->shape,
                 launch->args.data());
    const auto graph = cu::GraphExec::instantiate(capture.finish());
    constexpr int kRounds = 3;
    graph.launch(e.stream);
    begin.record(e.stream);
    for (int i = 0; i < kRounds; ++i)
      graph.launch(e.stream);
    end.record(e.stream);
    end.synchronize();
    const double us = static_cast<double>(end.us_since(begin)) / kRounds;
    for (std::size_t i = 0; i < launches.size(); ++i)
      parts.add(name, us / static_cast<double>(launches.size()));
  }
  return parts.sorted();
}

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
  constexpr int kWarmUp = 3;
  const std::int64_t total = longest + 2 * steps + kWarmUp + 2;
  const StepBucket size = bucket_of(
      {.rows = rows, .sequences = rows, .sequence_rows = 1, .logit_rows = rows, .context = total},
      e.max_context);
  executor::Bucket& bucket = e.ready_bucket(size);
  for (auto* record : records)
    e.grow(*record, record->length + 2 * steps + kWarmUp + 2);
  std::uint32_t token = 1;
  const auto prepare = [&] {
    executor::StepInputs& in = e.inputs;
    for (int r = 0; r < size.rows; ++r) {
      const bool live = r < rows;
      token = token * 1664525U + 1013904223U;
      in.ids[r] = live ? static_cast<int>((token >> 8) %
                                          static_cast<std::uint32_t>(e.model_config.vocab_size))
                       : 0;
      auto* record = live ? records[static_cast<std::size_t>(r)] : nullptr;
      in.positions[r] = live ? static_cast<int>(record->length) : 0;
      in.sequences[r] = live ? record->slot : -1;
      in.row_starts[r] = std::min(r, rows);
      in.slots[r] = live ? record->slot : 0;
      in.picks[r] = r;
      if (live) ++record->length;
    }
    in.row_starts[size.rows] = rows;
    e.memory.upload(e.stream, in);
  };
  DecodeTiming timing;
  timing.launches = static_cast<int>(bucket.program.launches().size());
  for (int i = 0; i < kWarmUp; ++i) {
    prepare();
    e.run(bucket);
  }
  auto begin = cu::Event::create(e.context, cu::Event::Timing::on);
  auto end = cu::Event::create(e.context, cu::Event::Timing::on);
  begin.record(e.stream);
  for (int i = 0; i < steps; ++i) {
    prepare();
    e.run(bucket);
  }
  end.record(e.stream);
  end.synchronize();
  timing.step_us = static_cast<double>(end.us_since(begin)) / steps;
  timing.from_graph = bucket.graph.has_value();

  if (executor::StepTrace trace(e.context, e.stream); trace.attach(bucket.program)) {
    for (int i = 0; i < steps; ++i) {
      prepare();
      e.run(bucket);
    }
    const auto& launches = bucket.program.launches();
    const std::vector<double> us = trace.read(launches.size());
    Parts path;
    for (std::size_t i = 0; i < us.size(); ++i)
      path.add(launches[i].name, us[i]);
    timing.path = path.sorted();
  }

  timing.parts = time_alone(e, bucket);
  double experts = 0;
  int layers = 0;
  prepare();
  for (const executor::StepLaunch& launch : bucket.program.launches()) {
    cu::launch(e.stream, launch.kernel->kernel.function(), launch.kernel->shape,
               launch.args.data());
    if (launch.name != "router") continue;
    std::vector<int> ids(static_cast<std::size_t>(rows * e.model_config.experts_per_token));
    e.memory.fetch(e.stream, e.memory.buffers().experts, std::as_writable_bytes(std::span(ids)));
    experts += static_cast<double>(std::set<int>(ids.begin(), ids.end()).size());
    ++layers;
  }
  timing.experts_read = layers > 0 ? experts / layers : 0;

  const ModelConfig& config = e.model_config;
  const std::uint64_t expert_bytes =
      kernels::moe_tile_bytes(2 * config.moe_intermediate_size, config.hidden_size) +
      kernels::moe_tile_bytes(config.hidden_size, config.moe_intermediate_size);
  timing.weight_bytes = bytes_of(e.weights.head()) +
                        static_cast<std::uint64_t>(experts * static_cast<double>(expert_bytes));
  for (std::size_t i = 0; i < e.weights.layers().size(); ++i) {
    timing.weight_bytes += layer_bytes(config, e.weights.layers()[i]);
    const LayerKind kind = config.layer_kind(static_cast<int>(i));
    for (const auto* record : records) {
      std::int64_t entries = std::min<std::int64_t>(record->length, config.sliding_window);
      if (kind == LayerKind::hca) entries += record->length / 128;
      if (kind == LayerKind::csa) {
        const std::int64_t visible = record->length / 4;
        entries += std::min<std::int64_t>(visible, config.index_topk);
        if (visible > config.index_topk)
          timing.context_bytes += product(visible, kIndexPageBytes / kernels::KV_PAGE_ENTRIES);
      }
      timing.context_bytes += product(entries, kernels::KV_DATA_BYTES + kernels::KV_SCALE_BYTES);
    }
  }
  return timing;
}

}  // namespace ingot
