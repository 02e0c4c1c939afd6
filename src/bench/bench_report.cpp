#include "src/bench/bench_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/bench/subject_json.hpp"

namespace ingot {
namespace {

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

/// What a kind of launch adds to the step from its graph; empty where that was not traced.
std::string path_text(const DecodeTiming& timing, std::string_view name) {
  for (const auto& part : timing.path)
    if (part.name == name) return fmt::format("{:.1f}", part.us);
  return {};
}

/// @param of  "batch 1, context 2K": what they are launches of
void print_parts(const std::string& of, const DecodeTiming& timing, std::FILE* out) {
  double sum = 0;
  for (const auto& part : timing.parts)
    sum += part.us;
  fmt::print(out, "\n{}: kinds of launches by themselves, {:.0f} us together\n", of, sum);
  fmt::print(out, "{:>10} {:>7} {:>9} {:>9}  {:<26} {:<18} {}\n", "us", "share", "launches",
             timing.path.empty() ? "" : "in step", "what", "choice", "kernel");
  for (const auto& part : timing.parts) {
    fmt::print(out, "{:>10.1f} {:>7} {:>9} {:>9}  {:<26} {:<18} {}\n", part.us,
               percent(part.us / sum), part.launches, path_text(timing, part.name), part.name,
               part.choice, part.kernel);
  }
}

nlohmann::ordered_json parts_json(const std::vector<DecodeTiming::Part>& parts) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& part : parts) {
    json.push_back({{"what", part.name},
                    {"us", part.us},
                    {"launches", part.launches},
                    {"kernel", part.kernel},
                    {"choice", part.choice}});
  }
  return json;
}

}  // namespace

nlohmann::ordered_json subject_json(const BenchSubject& subject, std::string_view what) {
  nlohmann::ordered_json json;
  json["bench"] = what;
  json["device"] = subject.device;
  json["arch"] = subject.arch;
  json["driver"] = subject.driver_branch;
  json["nvrtc"] = subject.compiler;
  json["ingot"] = subject.version;
  json["model"] = subject.model;
  json["synthetic"] = subject.synthetic;
  json["layers"] = subject.layers;
  json["tp"] = subject.tp_size;
  if (!subject.forced.empty()) json["forced"] = subject.forced;
  json["ready_s"] = subject.ready_s;
  if (subject.rates.reads.empty()) return json;  // no card
  auto& card = json["card"];
  card["read_bytes_per_us"] = subject.rates.bytes_per_us();
  card["f16_operations_per_us"] = subject.rates.f16_per_us;
  card["fp8_operations_per_us"] = subject.rates.fp8_per_us;
  card["empty_node_us"] = subject.rates.empty_node_us;
  card["cold_reads"] = nlohmann::ordered_json::array();
  for (const ColdRead& read : subject.rates.reads)
    card["cold_reads"].push_back({{"bytes", read.bytes}, {"us", read.us}});
  return json;
}

std::string tokens_text(std::int64_t tokens) {
  if (tokens >= 1024 && tokens % 1024 == 0) return fmt::format("{}K", tokens / 1024);
  return fmt::to_string(tokens);
}

void print_card(const BenchSubject& subject, std::FILE* out) {
  const CardRates& rates = subject.rates;
  fmt::print(out,
             "{}, {}, driver {}, NVRTC {}: reads {:.2f} TB/s, multiplies {:.0f} TFLOP/s in f16 and "
             "{:.0f} in FP8, an empty graph node {:.2f} us\n",
             subject.device, subject.arch, subject.driver_branch,
             subject.compiler.empty() ? "none" : subject.compiler, rates.bytes_per_us() / 1e6,
             rates.f16_per_us / 1e6, rates.fp8_per_us / 1e6, rates.empty_node_us);
}

void print_subject(const BenchSubject& subject, std::FILE* out) {
  print_card(subject, out);
  fmt::print(out, "{}, {} layers, {}, TP {}: ready in {:.1f} s\n", subject.model, subject.layers,
             subject.synthetic ? "made-up weights" : "its own weights", subject.tp_size,
             subject.ready_s);
  if (!subject.forced.empty()) fmt::print(out, "forced: {}\n", fmt::join(subject.forced, " "));
}

void print_decode(const std::vector<DecodeResult>& results, std::FILE* out) {
  fmt::print(out, "\n{:>6} {:>8} {:>9} {:>9} {:>9} {:>7} {:>9} {:>8} {:>9} {:>8} {:>10}\n", "batch",
             "context", "us/step", "tokens/s", "floor us", "share", "reads GB", "experts",
             "launches", "host us", "engine us");
  for (const DecodeResult& r : results) {
    if (!r.refusal.empty()) {
      fmt::print(out, "{:>6} {:>8} not run: {}\n", r.cell.batch, tokens_text(r.cell.context),
                 r.refusal);
      continue;
    }
    fmt::print(out,
               "{:>6} {:>8} {:>9.0f} {:>9.1f} {:>9.0f} {:>7} {:>9.2f} {:>8.1f} {:>9} {:>8.0f} "
               "{:>10.0f}{}\n",
               r.cell.batch, tokens_text(r.cell.context), r.timing.step_us, r.tokens_per_s(),
               r.floor.us, percent(r.share_of_floor()), r.floor.bytes / 1e9, r.timing.experts_read,
               r.timing.launches, r.timing.queue_us, r.engine_us,
               r.timing.from_graph ? "" : "  (not from a graph)");
  }
  for (const DecodeResult& r : results)
    if (r.refusal.empty())
      print_parts(fmt::format("batch {}, context {}", r.cell.batch, tokens_text(r.cell.context)),
                  r.timing, out);
}

void print_determinism(const std::vector<DecodeResult>& usual,
                       const std::vector<DecodeResult>& deterministic, std::FILE* out) {
  fmt::print(out, "\ndeterministic steps beside the usual ones\n{:>6} {:>8} {:>9} {:>13} {:>7}\n",
             "batch", "context", "us/step", "deterministic", "cost");
  for (const DecodeResult& one : deterministic) {
    for (const DecodeResult& other : usual) {
      if (other.cell != one.cell || !other.refusal.empty() || !one.refusal.empty()) continue;
      fmt::print(out, "{:>6} {:>8} {:>9.0f} {:>13.0f} {:>+6.1f} %\n", one.cell.batch,
                 tokens_text(one.cell.context), other.timing.step_us, one.timing.step_us,
                 100 * (one.timing.step_us / other.timing.step_us - 1));
    }
  }
}

void print_prefill(const PrefillResult& r, std::FILE* out) {
  fmt::print(out, "\n{:>8} {:>7} {:>10} {:>9} {:>9} {:>7} {:>11}\n", "tokens", "chunk", "ms",
             "tokens/s", "TFLOP/s", "share", "graph steps");
  fmt::print(out, "{:>8} {:>7} {:>10.1f} {:>9.0f} {:>9.1f} {:>7} {:>11}\n", r.tokens, r.chunk,
             r.us / 1e3, r.tokens_per_s(), r.operations / r.us / 1e6, percent(r.floor_us / r.us),
             r.graph_steps);
  DecodeTiming timing;
  timing.parts = r.last.parts;
  print_parts(fmt::format("the last pass, a bucket of {} rows", r.last.rows), timing, out);
}

std::string decode_json(const BenchSubject& subject, const DecodeResult& result) {
  nlohmann::ordered_json json = subject_json(subject, "decode");
  json["batch"] = result.cell.batch;
  json["context"] = result.cell.context;
  json["deterministic"] = result.deterministic;
  if (!result.refusal.empty()) {
    json["refusal"] = result.refusal;
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  const DecodeTiming& timing = result.timing;
  json["step_us"] = timing.step_us;
  json["tokens_per_s"] = result.tokens_per_s();
  json["floor_us"] = result.floor.us;
  json["share_of_floor"] = result.share_of_floor();
  json["bytes"] = result.floor.bytes;
  json["operations"] = result.floor.operations;
  json["experts_of_a_layer"] = timing.experts_read;
  json["launches"] = timing.launches;
  json["from_graph"] = timing.from_graph;
  json["host_us"] = timing.queue_us;
  json["engine_us"] = result.engine_us;
  json["parts"] = parts_json(timing.parts);
  if (!timing.path.empty()) {
    json["path"] = nlohmann::ordered_json::array();
    for (const auto& part : timing.path)
      json["path"].push_back({{"what", part.name}, {"us", part.us}, {"launches", part.launches}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string prefill_json(const BenchSubject& subject, const PrefillResult& result) {
  nlohmann::ordered_json json = subject_json(subject, "prefill");
  json["tokens"] = result.tokens;
  json["chunk"] = result.chunk;
  json["us"] = result.us;
  json["tokens_per_s"] = result.tokens_per_s();
  json["operations"] = result.operations;
  json["floor_us"] = result.floor_us;
  json["share_of_rate"] = result.floor_us / result.us;
  json["graph_steps"] = result.graph_steps;
  json["pass_rows"] = result.last.rows;
  json["parts"] = parts_json(result.last.parts);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ingot
