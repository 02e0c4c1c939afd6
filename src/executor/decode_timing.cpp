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
    ranks.meet();
    constexpr int kRounds = 3;
    graph.launch(rank.stream);
    begin.record(rank.stream);
    for (int i = 0; i < kRounds; ++i)
      graph.launch(rank.stream);
    end.record(rank.stream);
    rank.finish();
    const double us = static_cast<double>(end.us_since(begin)) / kRounds;
    for (std::size_t i = 0; i < launches.size(); ++i)
      parts.add(name, us / static_cast<double>(launches.size()));
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
  constexpr int kWarmUp = 3;
  const int all_steps = 2 * steps + kWarmUp + 1;
  const StepBucket size = bucket_of({.rows = rows,
                                     .sequences = rows,
                                     .sequence_rows = 1,
                                     .logit_rows = rows,
                                     .context = longest + all_steps},
                                    e.max_context);
  for (auto* record : records)
    e.grow(*record, record->length + all_steps);
  e.apply_changes();
  // Every rank makes the same inputs of step `n`.
  const auto prepare = [&](executor::EngineRank& rank, executor::StepInputs& in, int n) {
    for (int r = 0; r < size.rows; ++r) {
      const bool live = r < rows;
      const std::uint32_t token =
          (static_cast<std::uint32_t>(n * size.rows + r) + 1) * 1664525U + 1013904223U;
      in.ids[r] = live ? static_cast<int>((token >> 8) %
                                          static_cast<std::uint32_t>(e.model_config.vocab_size))
                       : 0;
      auto* record = live ? records[static_cast<std::size_t>(r)] : nullptr;
      in.positions[r] = live ? static_cast<int>(record->length) + n : 0;
      in.sequences[r] = live ? record->slot : -1;
      in.row_starts[r] = std::min(r, rows);
      in.slots[r] = live ? record->slot : 0;
      in.picks[r] = r;
    }
    in.row_starts[size.rows] = rows;
    rank.memory.upload(rank.stream, in);
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
    begin.record(rank.stream);
    int n = done;
    for (const int last = n + steps; n < last; ++n)
      run(rank, n);
    end.record(rank.stream);
    rank.finish();
    const double step_us = static_cast<double>(end.us_since(begin)) / steps;
    std::vector<DecodeTiming::Part> path;
    e.ranks.meet();
    if (executor::StepTrace trace(rank.context, rank.stream); trace.attach(bucket.program)) {
      e.ranks.meet();
      for (const int last = n + steps; n < last; ++n)
        run(rank, n);
      rank.finish();
      const std::vector<double> us = trace.read(launches.size());
      Parts parts;
      for (std::size_t i = 0; i < us.size(); ++i)
        parts.add(launches[i].name, us[i]);
      path = parts.sorted();
    }
    auto parts = time_alone(e.ranks, rank, bucket.program);
    e.ranks.meet();
    prepare(rank, inputs[static_cast<std::size_t>(rank.tp_rank)], n);
    for (const executor::StepLaunch& launch : launches) {
      bucket.program.launch_one(rank.stream, launch);
      if (launch.name != "router" || rank.tp_rank != 0) continue;
      std::vector<int> ids(static_cast<std::size_t>(rows * e.model_config.experts_per_token));
      rank.memory.fetch(rank.stream, rank.memory.buffers().experts,
                        std::as_writable_bytes(std::span(ids)));
      experts += static_cast<double>(std::set<int>(ids.begin(), ids.end()).size());
      ++layers;
    }
    rank.finish();
    if (rank.tp_rank != 0) return;
    timing.step_us = step_us;
    timing.launches = static_cast<int>(launches.size());
    timing.from_graph = bucket.graph.has_value();
    timing.path = std::move(path);
    timing.parts = std::move(parts);
  });
  for (auto* record : records)
    record->length += all_steps;
  timing.experts_read = layers > 0 ? experts / layers : 0;

  const ModelConfig& config = e.model_config;
  const int inter =
      kernels::moe_width(config.moe_intermediate_size / static_cast<int>(e.ranks.size()));
  const std::uint64_t expert_bytes = kernels::moe_tile_bytes(2 * inter, config.hidden_size) +
                                     kernels::moe_tile_bytes(config.hidden_size, inter);
  const executor::DeviceWeights& weights = e.ranks[0].weights;
  timing.weight_bytes = bytes_of(weights.head()) +
                        static_cast<std::uint64_t>(experts * static_cast<double>(expert_bytes));
  for (std::size_t i = 0; i < weights.layers().size(); ++i) {
    timing.weight_bytes += layer_bytes(config, weights.layers()[i]);
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
