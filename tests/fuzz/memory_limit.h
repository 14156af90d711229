#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace speclab::fuzz {

/// The most memory that reading a file of `size` bytes may take, in bytes: four times its size plus a
/// constant for tables of constants, the message of an error and the pieces of a vocabulary. The constant of
/// gguf is for keys. A key takes 136 bytes and may have 15 in the file, so 4,096 keys take 304 KiB more than
/// four times their bytes. `target`: the name of the fuzzer of this kind of file (scripts/fuzz.sh). The
/// fuzzers and tests/model/files/hostile_memory_test.cpp hold readers to this limit.
constexpr std::int64_t memory_limit(std::string_view target, std::size_t size) {
  const std::int64_t constant = target == "safetensors" ? 64 << 10 : target == "gguf" ? 512 << 10 : 1 << 20;
  return 4 * static_cast<std::int64_t>(size) + constant;
}

}  // namespace speclab::fuzz
