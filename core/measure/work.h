#pragma once

#include <cstdint>

namespace speclab {

/// Counts the work of one model's forwards. The counters are plain sums; subtract two
/// readings to get the work in between.
struct Work {
  std::int64_t calls = 0;       ///< forwards; for a draft head: downloads to the host (HeadRunner::get)
  std::int64_t rows = 0;        ///< tokens fed to the model
  std::int64_t logit_rows = 0;  ///< rows for which the output head ran
  std::int64_t keys = 0;        ///< keys that a row attends to in a layer without window, summed over rows
  double flops = 0;             ///< useful floating-point operations
  double weight_bytes = 0;      ///< weights read, counted once per call
  double kv_bytes = 0;          ///< KV cache bytes read and written
  double hidden_bytes =
      0;  ///< hidden states fetched to the host (a download from a device with its own memory)

  Work& operator+=(const Work& other);
  Work operator-(const Work& earlier) const;
};

}  // namespace speclab
