#include "tuner/fixed_replays.hpp"

namespace ingot {

FixedReplays::FixedReplays(const cu::Context& context, const cu::Stream& stream,
                           const cu::Graph& graph, int replays)
    : stream_(stream),
      exec_(cu::GraphExec::instantiate(graph)),
      nodes_(static_cast<int>(graph.node_count())) {
  exec_.upload(stream);
  for (int i = 0; i <= replays; ++i)
    marks_.push_back(cu::Event::create(context, cu::Event::Timing::on));
  stream.synchronize();
}

Timing FixedReplays::run() {
  for (int i = 0; i < 2; ++i)
    exec_.launch(stream_);
  marks_[0].record(stream_);
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    exec_.launch(stream_);
    marks_[i].record(stream_);
  }
  marks_.back().synchronize();
  std::vector<double> samples_us;
  for (std::size_t i = 1; i < marks_.size(); ++i)
    samples_us.push_back(static_cast<double>(marks_[i].us_since(marks_[i - 1])));
  return summarize(samples_us, nodes_);
}

}  // namespace ingot
