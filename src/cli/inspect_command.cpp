#include "src/cli/inspect_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/log.hpp"
#include "runtime/base/printable.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/cli/byte_progress.hpp"
#include "src/cli/inspect_report.hpp"
#include "src/cli/json_line.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "src/weights/tensor_hashes.hpp"

namespace ingot {
namespace {

/// 159609485896 → "159,609,485,896"
std::string thousands(std::uint64_t value) {
  std::string digits = fmt::to_string(value);
  for (std::size_t at = digits.size(); at > 3; at -= 3)
    digits.insert(at - 3, 1, ',');
  return digits;
}

void print_tensors(const InspectReport& report, std::FILE* out) {
  fmt::print(out, "\n{:<10} {:>10} {:>20}\n", "dtype", "tensors", "bytes");
  for (const auto& [dtype, total] : report.dtypes) {
    fmt::print(out, "{:<10} {:>10} {:>20}\n", dtype_name(dtype), thousands(total.tensors),
               thousands(total.bytes));
  }
  fmt::print(out, "\n{:<46} {:<8} {:<16} {:<11} {:>8} {:>18}\n", "tensor", "dtype", "shape",
             "split", "count", "bytes");
  for (const InspectReport::Group& group : report.groups) {
    fmt::print(out, "{:<46} {:<8} {:<16} {:<11} {:>8} {:>18}\n", printable(group.pattern),
               dtype_name(group.dtype), shape_text(group.shape), group.split,
               thousands(group.total.tensors), thousands(group.total.bytes));
  }
}

void print_memory(const MemoryPlan& plan, std::FILE* out) {
  const auto row = [out](std::string_view name, std::uint64_t bytes, std::string_view more) {
    fmt::print(out, "  {:<10} {:>8.2f} GB  {}\n", name, static_cast<double>(bytes) / 1e9, more);
  };
  fmt::print(out, "\nmemory of each GPU\n");
  row("weights", plan.costs.weights, "");
  row("buffers", plan.costs.buffers,
      fmt::format("what kernels hand on, in passes of up to {} tokens",
                  thousands(static_cast<std::uint64_t>(plan.step_rows))));
  row("sequences", plan.slot_bytes(),
      fmt::format("{} and kept copies of them, {:.1f} MB each", plan.wish.sequences,
                  static_cast<double>(plan.costs.slot) / 1e6));
  row("context", plan.pool_bytes(),
      fmt::format("{} tokens in all, up to {} each",
                  thousands(static_cast<std::uint64_t>(plan.context_tokens())),
                  thousands(static_cast<std::uint64_t>(plan.wish.max_context))));
  row("reserve", plan.costs.reserve, "the driver, graphs, scratch of kernels");
  row("free", plan.gpu_bytes - plan.used_bytes(),
      fmt::format("of {:.2f} GB", static_cast<double>(plan.gpu_bytes) / 1e9));
}

void print_table(const InspectReport& report, std::FILE* out) {
  const auto row = [out](std::string_view name, std::string_view value) {
    fmt::print(out, "{:<10} {}\n", name, value);
  };
  row("model", printable(report.model.string()));
  if (!report.flavour.empty()) {
    row("flavour", report.flavour);
    row("layers", report.layers);
    row("draft", report.draft);
  }
  row("shards", fmt::to_string(report.shards.size()));
  row("tensors", thousands(report.total.tensors));
  row("bytes", fmt::format("{} ({:.2f} GB)", thousands(report.total.bytes),
                           static_cast<double>(report.total.bytes) / 1e9));
  if (!report.valid_tp_sizes.empty()) {
    row("TP sizes", fmt::format("{}", fmt::join(report.valid_tp_sizes, ", ")));
  }
  if (report.tp > 0) {
    row("TP", fmt::format("{} ranks, each loads {} bytes ({:.2f} GB): {} of its own, {} replicated",
                          report.tp, thousands(report.rank.all()),
                          static_cast<double>(report.rank.all()) / 1e9,
                          thousands(report.rank.sharded), thousands(report.rank.replicated)));
    row("device", report.device_refusal.empty()
                      ? fmt::format("{} bytes ({:.2f} GB) of weights in each rank's memory",
                                    thousands(report.rank_device_bytes),
                                    static_cast<double>(report.rank_device_bytes) / 1e9)
                      : report.device_refusal);
  }
  for (const std::string& note : report.notes)
    row("note", printable(note));

  if (report.total.tensors > 0) print_tensors(report, out);
  if (report.memory) print_memory(*report.memory, out);
  if (!report.memory_refusal.empty()) fmt::print(out, "\n{}\n", report.memory_refusal);
  if (report.problems.empty()) return;
  fmt::print(out, "\nwrong: {}\n", counted(report.problems.size(), "problem"));
  for (const Problem& problem : report.problems.list())
    fmt::print(out, "  {}\n", printable_message(problem.text));
}

nlohmann::ordered_json to_json(const InspectReport& report) {
  nlohmann::ordered_json json;
  json["model"] = report.model.string();
  json["flavour"] = report.flavour;  // "" where config.json could not be read
  json["draft"] = report.draft;
  json["tensors"] = report.total.tensors;
  json["bytes"] = report.total.bytes;
  json["dtypes"] = nlohmann::ordered_json::object();
  for (const auto& [dtype, total] : report.dtypes) {
    json["dtypes"][std::string(dtype_name(dtype))] = {{"tensors", total.tensors},
                                                      {"bytes", total.bytes}};
  }
  json["shards"] = nlohmann::ordered_json::array();
  for (const Shard& shard : report.shards) {
    json["shards"].push_back({{"file", shard.path.filename().string()},
                              {"bytes", shard.file_bytes},
                              {"tensors", shard.tensors}});
  }
  json["groups"] = nlohmann::ordered_json::array();
  for (const InspectReport::Group& group : report.groups) {
    json["groups"].push_back({{"tensor", group.pattern},
                              {"dtype", dtype_name(group.dtype)},
                              {"shape", group.shape},
                              {"split", group.split},
                              {"count", group.total.tensors},
                              {"bytes", group.total.bytes}});
  }
  json["valid_tp"] = report.valid_tp_sizes;
  if (report.tp > 0) {
    json["tp"] = {{"size", report.tp},
                  {"bytes_per_rank", report.rank.all()},
                  {"sharded_bytes_per_rank", report.rank.sharded},
                  {"replicated_bytes_per_rank", report.rank.replicated},
                  {"device_bytes_per_rank", nullptr}};  // null: no GPU can run it so
    if (report.device_refusal.empty())
      json["tp"]["device_bytes_per_rank"] = report.rank_device_bytes;
  }
  if (report.memory) {
    const MemoryPlan& plan = *report.memory;
    json["memory"] = {{"gpu_bytes", plan.gpu_bytes},
                      {"weights", plan.costs.weights},
                      {"buffers", plan.costs.buffers},
                      {"pass_tokens", plan.step_rows},
                      {"sequences", plan.wish.sequences},
                      {"sequence_bytes", plan.slot_bytes()},
                      {"context_tokens", plan.context_tokens()},
                      {"context_bytes", plan.pool_bytes()},
                      {"reserve", plan.costs.reserve},
                      {"free", plan.gpu_bytes - plan.used_bytes()}};
  } else if (!report.memory_refusal.empty()) {
    json["memory"] = {{"refusal", report.memory_refusal}};
  }
  json["notes"] = report.notes;
  json["problems"] = nlohmann::ordered_json::array();
  for (const Problem& problem : report.problems.list())
    json["problems"].push_back(problem.text);
  return json;
}

}  // namespace

int run_inspect(const InspectOptions& options, std::FILE* out) {
  Problems problems;
  const Checkpoint checkpoint = Checkpoint::survey(options.model, problems);
  InspectReport report = make_inspect_report(checkpoint, std::move(problems), options);
  std::vector<std::string> digests;
  if (options.hash) {
    ByteProgress progress("hashing", Progress::standard_error());
    digests = hash_tensors(checkpoint, options.threads, [&](std::uint64_t done, std::uint64_t all) {
      progress.update(done, all);
    });
    if (checkpoint.has_config()) {
      check_all_values(checkpoint, ValueChecks::all, options.threads, report.problems);
    }
  }
  if (options.json) {
    nlohmann::ordered_json json = to_json(report);
    for (std::size_t i = 0; i < digests.size(); ++i) {
      json["xxh3_128"][std::string(checkpoint.tensors()[i].name)] = digests[i];
    }
    fmt::print(out, "{}\n", json_line(json));
  } else {
    print_table(report, out);
    if (!digests.empty()) fmt::print(out, "\nXXH3_128 of every tensor\n");
    for (std::size_t i = 0; i < digests.size(); ++i) {
      fmt::print(out, "{}  {}\n", digests[i], printable(checkpoint.tensors()[i].name));
    }
  }
  if (std::fflush(out) != 0) throw std::system_error(errno, std::generic_category());
  // The report has the words; here is only that there are some, for those who read no report.
  if (!report.problems.empty()) {
    const std::size_t count = report.problems.size();
    log::error("inspecting {}: {}; the report says what is wrong and what to do",
               options.model.string(), counted(count, "problem"));
    return 2;  // whatever is wrong, it is the checkpoint
  }
  if (report.memory_refusal.empty()) return 0;
  log::error("inspecting {}: the model does not fit; the report says what to do",
             options.model.string());
  return 1;
}

}  // namespace ingot
