#include "src/bench/serve_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/bench/subject_json.hpp"

namespace ingot {
namespace {

/// "85.2 %"; "-" for what was not measured.
std::string share_text(double part, double whole) {
  return part > 0 && whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

}  // namespace

std::string range_text(const TokenRange& range) {
  if (range.least == range.most) return fmt::to_string(range.least);
  return fmt::format("{}..{}", range.least, range.most);
}

void print_serve_head(std::FILE* out) {
  fmt::print(out,
             "\n{:>6} {:>8} {:>10} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} "
             "{:>7} {:>9} "
             "{:>8} {:>9}\n",
             "at", "", "tokens", "tokens", "", "out", "in", "first", "token ms", "", "", "of",
             "time in", "engine", "decode", "serve /", "steps of");
  fmt::print(out,
             "{:>6} {:>8} {:>10} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>7} "
             "{:>9} {:>8} {:>9}\n",
             "once", "requests", "in", "out", "s", "tokens/s", "tokens/s", "median", "p99",
             "steps/s", "batch", "places", "prompts", "idle", "tokens/s", "decode", "answers");
}

void print_serve(const ServeResult& r, std::FILE* out) {
  fmt::print(
      out,
      "{:>6} {:>8} {:>10} {:>8} {:>8.2f} {:>9.1f} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>6.1f} "
      "{:>7} {:>8} {:>7} {:>9.1f} {:>8} {:>9}{}{}\n",
      r.load.concurrency, r.load.requests, range_text(r.load.input), range_text(r.load.output),
      r.seconds, r.output_tokens_per_s(), r.input_tokens_per_s(), r.first_token_median_ms,
      r.first_token_p99_ms, r.steps_per_s(), r.mean_batch(), share_text(r.occupancy(), 1),
      share_text(r.prompt_share(), 1), share_text(r.idle_share(), 1), r.alone_tokens_per_s,
      share_text(r.output_tokens_per_s(), r.alone_tokens_per_s),
      share_text(r.decode_tokens_per_s(), r.decode_alone_tokens_per_s),
      r.totals.preemptions > 0 ? fmt::format("  {} preemptions", r.totals.preemptions) : "",
      r.kernels_compiled > 0
          ? fmt::format("  ({} kernels were compiled meanwhile)", r.kernels_compiled)
          : "");
  (void)std::fflush(out);
}

std::string serve_json(const BenchSubject& subject, const ServeResult& r) {
  nlohmann::ordered_json json = subject_json(subject, "serve");
  json["concurrency"] = r.load.concurrency;
  json["requests"] = r.load.requests;
  json["input"] = range_text(r.load.input);
  json["output"] = range_text(r.load.output);
  json["seed"] = r.load.seed;
  json["prefill_chunk"] = r.load.prefill_chunk;
  json["seconds"] = r.seconds;
  json["prompt_tokens"] = r.totals.prompt_tokens;
  json["generated_tokens"] = r.totals.generated_tokens;
  json["output_tokens_per_s"] = r.output_tokens_per_s();
  json["input_tokens_per_s"] = r.input_tokens_per_s();
  json["first_token_median_ms"] = r.first_token_median_ms;
  json["first_token_p99_ms"] = r.first_token_p99_ms;
  json["steps"] = r.totals.steps;
  json["prompt_steps"] = r.totals.prompt_steps;
  json["steps_per_s"] = r.steps_per_s();
  json["mean_batch"] = r.mean_batch();
  json["occupancy"] = r.occupancy();
  json["mean_context"] = r.mean_context;
  json["preemptions"] = r.totals.preemptions;
  json["prompt_share"] = r.prompt_share();
  json["engine_idle_share"] = r.idle_share();
  json["decode_steps"] = r.decode_steps;
  json["decode_steps_mean_batch"] = r.decode_mean_batch();
  json["decode_steps_tokens_per_s"] = r.decode_tokens_per_s();
  if (r.alone_tokens_per_s > 0) {
    json["decode_alone_tokens_per_s"] = r.alone_tokens_per_s;
    json["share_of_decode"] = r.share_of_alone();
  }
  if (r.decode_alone_tokens_per_s > 0) {
    json["decode_steps_alone_tokens_per_s"] = r.decode_alone_tokens_per_s;
    json["decode_steps_share_of_decode"] = r.decode_share_of_alone();
  }
  if (r.graph_steps >= 0) {
    json["graph_steps"] = r.graph_steps;
    json["kernels_compiled"] = r.kernels_compiled;
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ingot
