#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace speclab {

/// One kernel launch in a graph.
struct GraphNode {
  std::string_view kernel;  ///< name, a static string
  int blocks[3] = {1, 1, 1};
  int threads = 0, shared_bytes = 0;
  bool overlap = false;  ///< the launch may start while the one before it ends
};

/// Operations that were recorded once (DeviceProgram::record()) and can be replayed with one launch. A graph
/// keeps all memory that the operations got from Backend::room(). Other memory that its kernels use (weights,
/// caches, plans) must outlive it. The arguments of kernels are fixed; whatever changes between replays is in
/// memory of the device.
struct Graph {
  std::vector<GraphNode> nodes;  ///< each runs after the one before it
  bool loop = false;             ///< a replay repeats the graph until one of its kernels stops it
  std::vector<std::shared_ptr<void>> kept;
  std::shared_ptr<void> own;  ///< belongs to the backend
};

}  // namespace speclab
