#pragma once

#include <cstddef>

#include "runtime/base/unique.hpp"
#include "runtime/cuda/handle.hpp"
#include "runtime/cuda/stream.hpp"

namespace ingot::cu {

inline CUresult destroy_graph(const Handle<CUgraph>& graph) {
  return graph.driver->cuGraphDestroy(graph.raw);
}
inline CUresult destroy_graph_exec(const Handle<CUgraphExec>& exec) {
  return exec.driver->cuGraphExecDestroy(exec.raw);
}

/// Recorded work that has not been made ready to run.
class Graph {
 public:
  std::size_t node_count() const;
  /// Edges of which the later kernel may start early (programmatic dependent launch).
  std::size_t programmatic_edge_count() const;
  const DriverApi& driver() const { return *handle_.get().driver; }
  CUgraph raw() const { return handle_.get().raw; }

 private:
  friend class Capture;
  explicit Graph(Handle<CUgraph> handle) : handle_(handle) {}
  Unique<Handle<CUgraph>, destroy_graph> handle_;
};

/// While it lives, what is queued on the stream is recorded instead of run. Other threads' streams
/// are not disturbed. Abandoned without finish() (an exception), the recording is dropped.
class Capture {
 public:
  explicit Capture(const Stream& stream);
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();

  Graph finish();

 private:
  const Stream& stream_;
  bool active_ = true;
};

/// A graph made ready to run. One thread at a time.
class GraphExec {
 public:
  static GraphExec instantiate(const Graph& graph);

  /// Moves what the first launch would move, so that the first launch costs what later ones do.
  void upload(const Stream& stream) const;
  void launch(const Stream& stream) const;

 private:
  explicit GraphExec(Handle<CUgraphExec> handle) : handle_(handle) {}
  Unique<Handle<CUgraphExec>, destroy_graph_exec> handle_;
};

}  // namespace ingot::cu
