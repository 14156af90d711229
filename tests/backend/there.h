#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/backend.h"
#include "tests/backend/cuda/flight.h"

namespace speclab {

/// Copies arrays from the host to the backend's memory and back. Copies on the backend live as long as this
/// object.
class There {
 public:
  explicit There(Backend& backend) : backend_(backend) {}
  float* floats(const std::vector<float>& host) {
    floats_.push_back(backend_.allocate_buffer<float>(host.size()));
    backend_.upload(host.data(), host.size() * sizeof(float), floats_.back().data());
    return floats_.back().data();
  }
  float* room(std::size_t count) { return floats(std::vector<float>(count)); }
  std::vector<float> back(const float* there, std::size_t count) {
    std::vector<float> host(count);
    backend_.download(there, count * sizeof(float), host.data());
    return host;
  }
  const std::int32_t* integers(const std::vector<std::int32_t>& host) {
    integers_.push_back(backend_.allocate_buffer<std::int32_t>(host.size()));
    backend_.upload(host.data(), host.size() * sizeof(std::int32_t), integers_.back().data());
    return integers_.back().data();
  }
  RowsInFlight rows(const Flight& flight) {
    RowsInFlight rows = flight.rows();
    const auto copy = [&](const std::int32_t* from, int count) { return integers({from, from + count}); };
    const int paths = rows.path_begin[rows.n];
    return {rows.n,
            rows.committed,
            copy(rows.positions, rows.n),
            copy(rows.slots, rows.n),
            copy(rows.path_begin, rows.n + 1),
            copy(rows.paths, paths)};
  }

 private:
  Backend& backend_;
  std::vector<Buffer<float>> floats_;
  std::vector<Buffer<std::int32_t>> integers_;
};

}  // namespace speclab
