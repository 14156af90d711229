#include "core/measure/work.h"

namespace speclab {

Work& Work::operator+=(const Work& other) {
  calls += other.calls;
  rows += other.rows;
  logit_rows += other.logit_rows;
  keys += other.keys;
  flops += other.flops;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  hidden_bytes += other.hidden_bytes;
  return *this;
}

Work Work::operator-(const Work& earlier) const {
  return {calls - earlier.calls,           rows - earlier.rows,
          logit_rows - earlier.logit_rows, keys - earlier.keys,
          flops - earlier.flops,           weight_bytes - earlier.weight_bytes,
          kv_bytes - earlier.kv_bytes,     hidden_bytes - earlier.hidden_bytes};
}

}  // namespace speclab
