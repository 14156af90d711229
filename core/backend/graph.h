#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace speclab {

/// A kernel launch of a graph.
struct GraphNode {
  std::string_view kernel;  ///< static string
  int blocks[3] = {1, 1, 1};
  int threads = 0, shared_bytes = 0;
};

/// Operations that were recorded once, to be replayed with one launch (Backend::record). It keeps all memory
/// that the recording got from Backend::room(); other memory that its kernels use (weights, caches, plans)
/// must outlive it. Arguments are what they were: what changes between replays is in memory of the device.
struct Graph {
  std::vector<GraphNode> nodes;  ///< each depends on the one before it
  bool loop = false;             ///< replayed until a kernel of it says stop
  std::vector<std::shared_ptr<void>> kept;
  std::shared_ptr<void> own;  ///< of the backend
};

}  // namespace speclab
