#include "src/cli/inspect_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "src/checkpoint/flavour.hpp"
#include "src/executor/device_weights.hpp"
#include "src/executor/memory_costs.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/weights/open_checkpoint.hpp"

namespace ingot {
namespace {

/// Numbers between dots become "*".
std::string name_pattern(std::string_view name) {
  std::string pattern;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    pattern += number ? "*" : part;
    if (dot == name.size()) break;
    pattern += '.';
    name.remove_prefix(dot + 1);
  }
  return pattern;
}

std::string split_name(Split split) {
  switch (split) {
    case Split::rows:
      return "rows";
    case Split::columns:
      return "columns";
    case Split::replicated:
      return "replicated";
  }
  return "replicated";
}

std::string layers_text(const ModelConfig& config) {
  int counts[3] = {};
  for (int layer = 0; layer < config.num_layers; ++layer) {
    ++counts[static_cast<int>(config.layer_kind(layer))];
  }
  return fmt::format("{} ({} sliding window only, {} CSA, {} HCA), {} with hash routing",
                     config.num_layers, counts[0], counts[1], counts[2], config.num_hash_layers);
}

std::string draft_text(const ModelConfig& config) {
  switch (config.draft) {
    case DraftKind::none:
      return "none";
    case DraftKind::mtp:
      return fmt::format("MTP, {} block{}", config.num_mtp_layers,
                         config.num_mtp_layers == 1 ? "" : "s");
    case DraftKind::dspark:
      return "DSpark, not supported";
  }
  return "none";
}

void add_tensor(InspectReport& report, const TensorView& tensor, const std::string& split,
                std::unordered_map<std::string, std::size_t>& group_of) {
  const auto count = [&](InspectReport::Total& total) {
    ++total.tensors;
    total.bytes += tensor.bytes.size();
  };
  count(report.total);
  count(report.dtypes[tensor.dtype]);
  std::string pattern = name_pattern(tensor.name);
  // CSA and HCA compressors differ in shape under one pattern.
  std::string key = fmt::format("{} {}", pattern, fmt::join(tensor.shape, " "));
  const auto [known, is_new] = group_of.emplace(std::move(key), report.groups.size());
  if (is_new) report.groups.push_back({std::move(pattern), tensor.dtype, tensor.shape, split, {}});
  count(report.groups[known->second].total);
}

void add_split(InspectReport& report, const ModelConfig& config,
               const std::vector<TensorSpec>& table, int tp) {
  report.valid_tp_sizes = valid_tp_sizes(config);
  if (tp == 0) return;
  if (const auto valid = check_tp_size(config, tp); !valid) {
    report.problems.add(valid.error());
    return;
  }
  report.tp = tp;
  for (const TensorSpec& spec : table) {
    const auto bytes = static_cast<std::uint64_t>(range_bytes(rank_range(spec, 0, tp), spec.dtype));
    (spec.split == Split::replicated ? report.rank.replicated : report.rank.sharded) += bytes;
  }
  try {
    report.rank_device_bytes = executor::device_weight_bytes(config, {.tp_size = tp});
  } catch (const EngineError& error) {
    report.device_refusal = error.what();
  }
}

void add_memory(InspectReport& report, const ModelConfig& config, int tp, const GpuWish& gpu) {
  if (!check_tp_size(config, tp)) return;  // add_split() told of it
  const std::int64_t context = std::min<std::int64_t>(gpu.context, config.max_position_embeddings);
  try {
    auto plan = executor::plan_rank_memory(
        "the memory of a GPU", config, tp,
        {.sequences = sequences_for(gpu.max_batch), .max_context = context}, kMostStepRows,
        gpu.memory_bytes);
    if (plan) {
      report.memory = *plan;
    } else {
      report.memory_refusal = plan.error().message;
    }
  } catch (const EngineError& error) {
    report.memory_refusal = error.what();
  }
}

}  // namespace

InspectReport make_inspect_report(const Checkpoint& checkpoint, Problems problems,
                                  const InspectOptions& options) {
  InspectReport report;
  report.model = checkpoint.directory();
  report.problems = std::move(problems);
  report.shards.assign(checkpoint.shards().begin(), checkpoint.shards().end());
  std::vector<TensorSpec> table;
  if (checkpoint.has_config()) {
    const ModelConfig& config = checkpoint.config();
    report.flavour = model_flavour(config);
    report.layers = layers_text(config);
    report.draft = draft_text(config);
    report.notes = check_complete(checkpoint, report.problems);
    table = tensor_table(config);
    add_split(report, config, table, options.tp);
    if (options.gpu) add_memory(report, config, std::max(options.tp, 1), *options.gpu);
  }
  std::unordered_map<std::string_view, Split> split_of;
  for (const TensorSpec& spec : table)
    split_of.emplace(spec.name, spec.split);
  std::unordered_map<std::string, std::size_t> group_of;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const auto known = split_of.find(tensor.name);
    add_tensor(report, tensor, known == split_of.end() ? "not read" : split_name(known->second),
               group_of);
  }
  return report;
}

}  // namespace ingot
