#include "src/cli/generate_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

constexpr double kStatsInterval_s = 1;

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

Result<void> GenerateReport::open_stats(const std::filesystem::path& file) {
  stats_.reset(std::fopen(file.c_str(), "we"));
  stats_file_ = file;
  if (stats_ != nullptr) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("writing statistics to {}: {}", file.string(), why_not_written(errno)));
}

double GenerateReport::occupancy(const Scheduler::Totals& totals) const {
  if (totals.steps == 0) return 0;
  return static_cast<double>(totals.sequence_steps) / static_cast<double>(totals.steps) /
         max_batch_;
}

std::string GenerateReport::summary(const BatchCounts& counts,
                                    const Scheduler::Totals& totals) const {
  const double elapsed = std::max(seconds(), 1e-9);
  std::string out =
      fmt::format("{} answered, {} failed; tokens in {} ({:.0f}/s), out {} ({:.1f}/s); {:.1f} s",
                  counts.answered, counts.failed, totals.prompt_tokens,
                  static_cast<double>(totals.prompt_tokens) / elapsed, totals.generated_tokens,
                  static_cast<double>(totals.generated_tokens) / elapsed, elapsed);
  if (counts.done_before > 0) out += fmt::format("; {} were there already", counts.done_before);
  if (counts.failed_before > 0) out += fmt::format(", {} of them failed", counts.failed_before);
  if (totals.reused_tokens > 0) out += fmt::format("; {} tokens reused", totals.reused_tokens);
  if (totals.preemptions > 0) {
    out += fmt::format("; {} preemptions, {} tokens fed again", totals.preemptions,
                       totals.repeated_tokens);
  }
  return out;
}

std::string GenerateReport::progress(const BatchCounts& counts, const Scheduler& scheduler) const {
  std::string out =
      fmt::format("{}; {} of {} running, {:.0f} % in the mean", summary(counts, scheduler.totals()),
                  scheduler.running(), max_batch_, 100 * occupancy(scheduler.totals()));
  if (const auto room = scheduler.engine_room()) {
    out += fmt::format("; {} of {} KV pages", room->used, room->total);
  }
  if (input_bytes_ > 0 && counts.input_bytes > 0) {
    const double share =
        std::min(1.0, static_cast<double>(counts.input_bytes) / static_cast<double>(input_bytes_));
    out += fmt::format("; {:.0f} % read, {} left", 100 * share,
                       time_text(seconds() * (1 - share) / share));
  }
  return out;
}

void GenerateReport::write_stats(const BatchCounts& counts, const Scheduler& scheduler, bool end) {
  if (stats_ == nullptr) return;
  const double now = seconds();
  if (!end && now - stats_at_s_ < kStatsInterval_s) return;
  stats_at_s_ = now;
  const Scheduler::Totals& totals = scheduler.totals();
  std::string engine;
  if (const auto did = scheduler.engine_counts()) {
    engine = fmt::format("\"engine_steps\": {}, \"graph_steps\": {}, \"kernels_compiled\": {}, ",
                         did->steps, did->graph_steps, did->kernels_compiled);
  }
  if (const auto room = scheduler.engine_room()) {
    engine += fmt::format("\"kv_pages_used\": {}, \"kv_pages\": {}, ", room->used, room->total);
  }
  fmt::print(stats_.get(),
             "{{\"time_s\": {:.3f}, \"answered\": {}, \"failed\": {}, \"blank\": {}, "
             "\"done_before\": {}, \"failed_before\": {}, \"input_bytes_read\": {}, "
             "\"prompt_tokens\": {}, "
             "\"generated_tokens\": {}, \"steps\": {}, \"occupancy\": {:.4f}, \"running\": {}, "
             "\"waiting\": {}, \"preemptions\": {}, \"repeated_tokens\": {}, "
             "\"dropped_tokens\": {}, \"engine_idle_s\": {:.3f}, \"interrupted\": {}, "
             "{}\"end\": {}}}\n",
             now, counts.answered, counts.failed, counts.blank, counts.done_before,
             counts.failed_before, counts.input_bytes, totals.prompt_tokens,
             totals.generated_tokens, totals.steps, occupancy(totals), scheduler.running(),
             scheduler.waiting(), totals.preemptions, totals.repeated_tokens, totals.dropped_tokens,
             totals.engine_idle_s, counts.interrupted, engine, end);
  if (std::fflush(stats_.get()) == 0 || std::exchange(stats_failed_, true)) return;
  log::warn("writing statistics to {}: {}; lines of it are missing", stats_file_.string(),
            why_not_written(errno));
}

}  // namespace ingot
