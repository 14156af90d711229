#include "core/measure/recorder.h"

#include <cstring>

#include "core/measure/clock.h"

namespace speclab {

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& times) {
  for (std::size_t i = 0; i < ns.size(); ++i) ns[i] += times.ns[i];
  return *this;
}

void PhaseClock::start(Phase phase) {
  times_ = {};
  phase_ = phase;
  since_ns_ = wall_now_ns();
}

void PhaseClock::enter(Phase phase) {
  const std::int64_t now = wall_now_ns();
  times_[phase_] += now - since_ns_;
  since_ns_ = now;
  phase_ = phase;
}

PhaseTimes PhaseClock::lap() {
  enter(phase_);
  const PhaseTimes result = times_;
  times_ = {};
  return result;
}

const char* to_string(EndedBy ended_by) {
  switch (ended_by) {
    case EndedBy::rejection: return "rejection";
    case EndedBy::bonus: return "bonus";
    case EndedBy::eos: return "eos";
    case EndedBy::length: return "length";
    case EndedBy::schedule: return "schedule";
    case EndedBy::none: return "none";
  }
  return "";
}

const char* to_string(Finish finish) {
  switch (finish) {
    case Finish::eos: return "eos";
    case Finish::length: return "length";
    case Finish::stop: return "stop";
    case Finish::context: return "context";
    case Finish::cancelled: return "cancelled";
  }
  return "";
}

std::uint32_t hash_row(const float* row, std::size_t size) {
  // Four independent lanes of xor, multiplication and shift over 64-bit words. A single lane would wait for
  // each multiplication.
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  std::uint64_t lane[4] = {1, 2, 3, 4};
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::uint64_t words[4];
    std::memcpy(words, row + i, sizeof words);
    for (int k = 0; k < 4; ++k) {
      lane[k] = (lane[k] ^ words[k]) * kOdd;
      lane[k] ^= lane[k] >> 29;
    }
  }
  for (; i < size; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    lane[i % 4] = ((lane[i % 4] ^ bits) * kOdd) ^ (lane[i % 4] >> 31);
  }
  std::uint64_t hash = size;
  for (std::uint64_t value : lane) {
    hash = (hash ^ value) * kOdd;
    hash ^= hash >> 32;
  }
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace speclab
