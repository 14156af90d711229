#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/backend.h"

namespace speclab {

/// Builds the arrays of a RowsInFlight row by row, for tests of attention.
class Flight {
 public:
  /// A chain of `n` rows with positions and slots committed .. committed + n - 1. The parent of a row is the
  /// row before it.
  static Flight chain(int committed, int n) {
    Flight flight(committed);
    std::vector<std::int32_t> path;
    for (int i = 0; i < n; ++i) {
      path.push_back(committed + i);
      flight.add(path);
    }
    return flight;
  }
  explicit Flight(int committed) : committed_(committed) {}
  /// Adds a row. `path` lists the slots of its ancestors in flight and, last, its own slot.
  void add(const std::vector<std::int32_t>& path) {
    positions_.push_back(committed_ + static_cast<std::int32_t>(path.size()) - 1);
    slots_.push_back(path.back());
    paths_.insert(paths_.end(), path.begin(), path.end());
    path_begin_.push_back(static_cast<std::int32_t>(paths_.size()));
  }
  RowsInFlight rows() const {
    return {static_cast<int>(slots_.size()),
            committed_,
            positions_.data(),
            slots_.data(),
            path_begin_.data(),
            paths_.data()};
  }

 private:
  int committed_;
  std::vector<std::int32_t> positions_, slots_, path_begin_{0}, paths_;
};

}  // namespace speclab
