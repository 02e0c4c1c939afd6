#include "runtime/cuda/graph.hpp"

#include <algorithm>
#include <vector>

namespace ingot::cu {

std::size_t Graph::node_count() const {
  std::size_t count = 0;
  driver().check(driver().cuGraphGetNodes(raw(), nullptr, &count), "cuGraphGetNodes");
  return count;
}

std::size_t Graph::programmatic_edge_count() const {
  std::size_t count = 0;
  driver().check(driver().cuGraphGetEdges_v2(raw(), nullptr, nullptr, nullptr, &count),
                 "cuGraphGetEdges");
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  std::vector<CUgraphEdgeData> data(count);
  driver().check(driver().cuGraphGetEdges_v2(raw(), from.data(), to.data(), data.data(), &count),
                 "cuGraphGetEdges");
  return static_cast<std::size_t>(
      std::count_if(data.begin(), data.end(), [](const CUgraphEdgeData& edge) {
        return edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      }));
}

Capture::Capture(const Stream& stream) : stream_(stream) {
  stream.driver().check(
      stream.driver().cuStreamBeginCapture_v2(stream.raw(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
      "cuStreamBeginCapture");
}

Capture::~Capture() {
  if (!active_) return;
  CUgraph dropped = nullptr;
  (void)stream_.driver().cuStreamEndCapture(stream_.raw(), &dropped);
  if (dropped != nullptr) (void)stream_.driver().cuGraphDestroy(dropped);
}

Graph Capture::finish() {
  active_ = false;
  CUgraph graph = nullptr;
  stream_.driver().check(stream_.driver().cuStreamEndCapture(stream_.raw(), &graph),
                         "cuStreamEndCapture");
  return Graph({graph, &stream_.driver()});
}

GraphExec GraphExec::instantiate(const Graph& graph) {
  CUgraphExec exec = nullptr;
  graph.driver().check(graph.driver().cuGraphInstantiateWithFlags(&exec, graph.raw(), 0),
                       "cuGraphInstantiateWithFlags");
  return GraphExec({exec, &graph.driver()});
}

void GraphExec::upload(const Stream& stream) const {
  stream.driver().check(stream.driver().cuGraphUpload(handle_.get().raw, stream.raw()),
                        "cuGraphUpload");
}

void GraphExec::launch(const Stream& stream) const {
  stream.driver().check(stream.driver().cuGraphLaunch(handle_.get().raw, stream.raw()),
                        "cuGraphLaunch");
}

}  // namespace ingot::cu
