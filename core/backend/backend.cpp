#include "core/backend/backend.h"

namespace speclab {

Buffer<float> Backend::keep(std::vector<float> numbers) {
  const std::size_t size = numbers.size();
  if (size == 0) return {};
  if (host_memory()) {
    auto kept = std::make_shared<std::vector<float>>(std::move(numbers));
    float* data = kept->data();
    return {std::move(kept), data, size};
  }
  Buffer<float> buffer = allocate_buffer<float>(size);
  upload(numbers.data(), size * sizeof(float), buffer.data());
  return buffer;
}

const std::int32_t* Backend::stage(std::span<const std::int32_t> numbers, Buffer<std::int32_t>& buffer) {
  if (host_memory()) return numbers.data();
  std::int32_t* copy = room(buffer, numbers.size());
  upload(numbers.data(), numbers.size_bytes(), copy);
  return copy;
}

}  // namespace speclab
