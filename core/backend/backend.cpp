#include "core/backend/backend.h"

#include "core/backend/plan.h"
#include "core/base/error.h"

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

namespace {

[[noreturn]] void fail_plan(const Backend& backend) { throw Bug(fmt::format("a planned round on backend {}, which has none", backend.name())); }

}  // namespace

std::shared_ptr<Plan> Backend::make_plan(const PlanShape&) { return nullptr; }
void Backend::plan_start(Plan&, const PlanStart&) { fail_plan(*this); }
void Backend::plan_draft_rows(Plan&, int) { fail_plan(*this); }
void Backend::plan_draw(Plan&, int) { fail_plan(*this); }
void Backend::plan_target_rows(Plan&) { fail_plan(*this); }
void Backend::plan_settle(Plan&) { fail_plan(*this); }
void Backend::plan_stamp(Plan&, int) { fail_plan(*this); }
bool Backend::idle() { return true; }

}  // namespace speclab
