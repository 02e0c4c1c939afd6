#include "tuner/measure.hpp"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

/// `sorted` is not empty.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - std::floor(place));
}

}  // namespace

Timing summarize(std::span<const double> samples_us, int nodes) {
  std::vector<double> sorted(samples_us.begin(), samples_us.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = percentile(sorted, 0.5);
  return {.median_us = median / nodes,
          .min_us = sorted.front() / nodes,
          .spread = (percentile(sorted, 0.9) - percentile(sorted, 0.1)) / median,
          .replays = static_cast<int>(sorted.size()),
          .nodes = nodes};
}

cu::Graph record_nodes(const cu::Stream& stream, int nodes, const std::function<void(int)>& queue) {
  cu::Capture capture(stream);
  for (int node = 0; node < nodes; ++node)
    queue(node);
  return capture.finish();
}

Timing measure(const cu::Context& context, const cu::Stream& stream, const cu::Graph& graph,
               const MeasurePolicy& policy) {
  const cu::GraphExec exec = cu::GraphExec::instantiate(graph);
  exec.upload(stream);
  const int nodes = static_cast<int>(graph.node_count());
  std::vector<cu::Event> marks;
  for (int i = 0; i <= policy.batch_replays; ++i)
    marks.push_back(cu::Event::create(context, cu::Event::Timing::on));

  bool is_long = false;
  if (policy.warmup_replays > 0) {
    marks[0].record(stream);
    exec.launch(stream);
    marks[1].record(stream);
    marks[1].synchronize();
    is_long = static_cast<double>(marks[1].us_since(marks[0])) > policy.long_us;
  }
  const int batch =
      is_long ? std::min(policy.long_batch, policy.batch_replays) : policy.batch_replays;
  const int most = is_long ? std::min(3 * batch, policy.max_replays) : policy.max_replays;
  while (static_cast<int>(marks.size()) > batch + 1)
    marks.pop_back();

  std::vector<double> samples_us;
  while (true) {
    // A batch starts behind untimed replays: its first mark is passed while work is queued.
    const int untimed =
        samples_us.empty() && !is_long
            ? std::max(policy.warmup_replays - 1, std::min(policy.warmup_replays, 1))
            : 1;
    for (int i = 0; i < untimed; ++i)
      exec.launch(stream);
    marks[0].record(stream);
    for (std::size_t i = 1; i < marks.size(); ++i) {
      exec.launch(stream);
      marks[i].record(stream);
    }
    marks.back().synchronize();
    for (std::size_t i = 1; i < marks.size(); ++i)
      samples_us.push_back(static_cast<double>(marks[i].us_since(marks[i - 1])));
    const Timing timing = summarize(samples_us, nodes);
    if (timing.spread <= policy.good_spread || timing.replays >= most) return timing;
  }
}

double cold_read_us(std::span<const ColdRead> curve, double bytes) {
  if (bytes <= curve.front().bytes) return curve.front().us;
  std::size_t upper = 1;
  while (upper + 1 < curve.size() && curve[upper].bytes < bytes)
    ++upper;
  const ColdRead& a = curve[upper - 1];
  const ColdRead& b = curve[upper];
  return a.us + (b.us - a.us) * (bytes - a.bytes) / (b.bytes - a.bytes);
}

}  // namespace ingot
