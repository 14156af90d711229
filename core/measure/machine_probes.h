#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/thread_pool.h"

namespace speclab {

/// The times of two fixed pieces of work, in ns. The same work takes longer while the machine is slow.
struct ProbeTimes {
  std::int64_t memory_ns = 0;      ///< reading data that no cache holds
  std::int64_t arithmetic_ns = 0;  ///< multiply-adds in registers
};

/// Times how fast the machine is at this moment, without any model. The work is the same in every call, so
/// two times differ only by the speed of the machine. A call takes a few milliseconds. It also replaces what
/// the caches hold, as a forward of a large model does.
class MachineProbes {
 public:
  /// Allocates the data that the memory probe reads: twice the size of the last-level cache, but at
  /// least 64 and at most 512 MiB. Throws Error when the system cannot start so many threads.
  explicit MachineProbes(int threads);
  /// Runs both probes on all threads.
  ProbeTimes run();

 private:
  ThreadPool pool_;
  std::size_t words_;                      ///< number of words in data_
  std::unique_ptr<std::uint64_t[]> data_;  ///< [words_]
  std::size_t next_ = 0;                   ///< first word of the next read
  std::uint64_t sum_ = 0;                  ///< sum of all words, so that the compiler keeps the reads
};

}  // namespace speclab
