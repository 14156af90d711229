#pragma once

#include <cstdint>

namespace speclab {

/// Work done by forwards of one model, counted where they run. Plain sums; subtract two readings for a span.
struct Work {
  std::int64_t calls = 0;       ///< forwards
  std::int64_t rows = 0;        ///< tokens fed
  std::int64_t logit_rows = 0;  ///< rows for which the head ran
  std::int64_t keys = 0;        ///< sum over rows of visible keys
  double flops = 0;             ///< useful floating-point operations
  double weight_bytes = 0;      ///< weights read, once per call
  double kv_bytes = 0;          ///< KV cache read and written
  double hidden_bytes = 0;  ///< hidden states brought to the host (a download where the device has memory)

  Work& operator+=(const Work& other);
  Work operator-(const Work& earlier) const;
};

}  // namespace speclab
