#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/trials/trials.h"
#include "core/base/bf16.h"

namespace speclab {
namespace cuda {
namespace {

/// Allocates memory of the device and fills it with results of `number`, which repeat after a megabyte.
/// Inputs that are all zero would give wrong times, because a chip computes faster with zeros.
template <typename T>
std::shared_ptr<T> filled(Device& device, std::size_t count, T (*number)(std::uint32_t)) {
  std::vector<T> part(std::min<std::size_t>(count, (std::size_t{1} << 20) / sizeof(T)));
  for (std::size_t i = 0; i < part.size(); ++i)
    part[i] = number(static_cast<std::uint32_t>(i) * 2654435761u >> 8);
  const std::shared_ptr<void> memory = device.allocate(count * sizeof(T));
  T* data = static_cast<T*>(memory.get());
  for (std::size_t at = 0; at < count; at += part.size())
    device.upload(part.data(), std::min(part.size(), count - at) * sizeof(T), data + at);
  return {memory, data};
}
std::uint16_t small_bf16(std::uint32_t random) {
  return float_to_bf16(static_cast<float>(random & 0xffff) * 0x1p-22f - 0x1p-7f);
}
float small_float(std::uint32_t random) { return static_cast<float>(random & 0xffff) * 0x1p-13f - 4; }

/// The launches of a trial: `launch(i)` starts the i-th of many.
struct Launches {
  std::function<void(int)> launch;
  std::string label;
};

void add(std::vector<KernelTrial>& trials, const StandPtr& stand, const std::string& name, double bytes,
         double flops, const std::function<Launches()>& prepare) {
  trials.push_back({.name = name, .bytes = bytes, .flops = flops, .ready = [stand, prepare] {
                      const Launches launches = prepare();
                      return KernelTrial::Ready{
                          [stand, launch = launches.launch] { return stand->time(launch); }, launches.label};
                    }});
}

void add_bandwidth(std::vector<KernelTrial>& trials, const StandPtr& stand) {
  const std::size_t bytes = stand->simulated() ? std::size_t{64} << 10 : std::size_t{1} << 30;
  add(trials, stand, "read", static_cast<double>(bytes), 0, [=] {
    const int blocks = stand->simulated() ? 1 : 4 * 132;
    const auto data =
        filled<std::uint32_t>(stand->device(), bytes / 4, [](std::uint32_t random) { return random; });
    const auto out = filled<std::uint32_t>(stand->device(), static_cast<std::size_t>(blocks) * kSpeedThreads,
                                           [](std::uint32_t) { return 0u; });
    return Launches{
        [=](int) { launch(ReadAll{data.get(), bytes / 16, blocks, out.get()}, stand->device().stream()); },
        {}};
  });
  // A copy reads all bytes and writes all bytes, so each byte counts twice.
  add(trials, stand, "copy", 2 * static_cast<double>(bytes), 0, [=] {
    const auto from = filled<std::uint16_t>(stand->device(), bytes / 2, small_bf16),
               to = filled<std::uint16_t>(stand->device(), bytes / 2, small_bf16);
    return Launches{[=](int) { stand->device().copy(from.get(), bytes, to.get()); }, {}};
  });
}

std::string label_of(const LinearFree& form) {
  return fmt::format("{} {}{}", form.slices,
                     form.slices == 1 ? "slice"
                     : form.many      ? "slices in blocks"
                                      : "slices in warps",
                     form.in_y   ? ", added as they come"
                     : form.many ? ", kernel linear_many"
                                 : "");
}
/// Returns the fastest form of a layer (linear_free_kernel.h). The forms may give different bits.
/// `launch_as(i, form)` starts the i-th launch.
LinearFree fastest(const Stand& stand, const Linear& layer,
                   const std::function<void(int, const LinearFree&)>& launch_as) {
  LinearFree best;
  double least = 0;
  for (const LinearFree& form : free_forms(layer)) {
    const double seconds = stand.time([&](int i) { launch_as(i, form); });
    if (least == 0 || seconds < least) least = seconds, best = form;
  }
  return best;
}

/// Adds two trials of one linear layer for each number of rows: the kernel that models run ("linear"), and
/// the fastest form without row invariance ("linear_free"). The input of the layer is already rounded. On a
/// GPU the launches use copies of the weights in turn, as many as fit into 256 MiB (at least 1, at most 96).
/// So the weights come from memory and not from a cache.
void add_linear(std::vector<KernelTrial>& trials, const StandPtr& stand, int out, int in,
                const std::vector<int>& all_rows) {
  using Weights = std::vector<std::shared_ptr<std::uint16_t>>;
  auto weights = std::make_shared<Weights>();
  const std::size_t elements = weight_elements(out, in);
  const std::size_t copies =
      stand->simulated() ? 1 : std::clamp<std::size_t>((std::size_t{256} << 20) / (2 * elements), 1, 96);
  for (const int rows : all_rows) {
    for (const bool free : {false, true}) {
      add(trials, stand, fmt::format("linear{}/rows:{}/out:{}/in:{}", free ? "_free" : "", rows, out, in),
          2.0 * out * in, 2.0 * out * in * rows, [=] {
            while (weights->size() < copies)
              weights->push_back(filled<std::uint16_t>(stand->device(), elements, small_bf16));
            const auto activations =
                filled<std::uint16_t>(stand->device(), activation_elements(rows, in), small_bf16);
            const auto y = filled<float>(
                stand->device(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(out), small_float);
            Linear layer;
            layer.out = out;
            layer.in = in;
            layer.activations = activations.get();
            layer.rows = rows;
            layer.y = y.get();
            layer.y_stride = out;
            const LinearPlan plan = free ? free_meeting(layer) : plan_of(out, in, rows);
            const auto partials = filled<float>(stand->device(), plan.partials, small_float);
            const auto arrivals = filled<std::uint32_t>(
                stand->device(), static_cast<std::size_t>(plan.meeting), [](std::uint32_t) { return 0u; });
            layer.partials = partials.get();
            layer.arrivals = arrivals.get();
            const auto launch_as = [=, kept = std::vector<std::shared_ptr<void>>{
                                           activations, y, partials, arrivals}](int i, auto form) {
              form.weights = (*weights)[static_cast<std::size_t>(i) % copies].get();
              launch(form, stand->device().stream());
            };
            if (!free) return Launches{[=](int i) { launch_as(i, layer); }, {}};
            const LinearFree form = fastest(*stand, layer, launch_as);
            return Launches{[=](int i) { launch_as(i, form); }, label_of(form)};
          });
    }
  }
}

/// Adds a trial of the work after the target's forward in a step: compute the distributions of all rows,
/// verify the draft, and move the accepted rows of the KV cache. The draft consists of two chains side by
/// side: the odd nodes and the even nodes. The even nodes are accepted, and their rows are moved. If `greedy`
/// is false and there are at least 3 rows, the last even node is rejected instead. Its token was drawn from a
/// law of the draft, so the correction is drawn from a residual. The row of the rejected node is moved, too.
void add_accept(std::vector<KernelTrial>& trials, const StandPtr& stand, int vocab, int rows, bool greedy) {
  const int layers = stand->simulated() ? 1 : 32, kv_heads = stand->simulated() ? 1 : 8,
            stride = kv_stride(128), slots = 256;
  const int last = greedy || rows < 3 ? 0 : (rows - 1) / 2 * 2;  // the node that is rejected; 0: none
  const double bytes = 4.0 * vocab * (rows * (greedy ? 1 : 3) + (last > 0 ? 2 : 0));
  add(trials, stand,
      fmt::format("accept_sample_compact{}/vocab:{}/rows:{}", greedy ? "_greedy" : "", vocab, rows), bytes, 0,
      [=] {
        Device& device = stand->device();
        const auto count = static_cast<std::size_t>(rows);
        std::vector<std::int32_t> tokens(count), parents(count), q_rows(count, -1), from, to;
        for (int node = 0; node < rows; ++node) {
          tokens[static_cast<std::size_t>(node)] = 7 + node;
          parents[static_cast<std::size_t>(node)] = node == 0 ? -1 : std::max(0, node - 2);
        }
        for (int node = 2; node < rows; node += 2) from.push_back(node), to.push_back(node / 2);
        const auto logits = filled<float>(device, count * static_cast<std::size_t>(vocab), small_float);
        if (last > 0) q_rows[static_cast<std::size_t>(last)] = 0;
        const auto q =
            filled<float>(device, static_cast<std::size_t>(vocab), [](std::uint32_t) { return 1e-6f; });
        const float drawn = 1;  // the weight of the token in q; its p is of the order of 1 / vocab
        const Law q_law{.sum = 1 + 1e-6 * vocab};
        device.upload(&drawn, sizeof drawn, q.get() + tokens[static_cast<std::size_t>(last)]);
        const std::shared_ptr<void> q_laws = device.allocate(sizeof q_law);
        device.upload(&q_law, sizeof q_law, q_laws.get());
        for (int node = 0; node + 2 < rows; node += 2) {  // the target is nearly certain of the child's token
          if (node + 2 == last) break;
          const float certain = 60;
          device.upload(&certain, sizeof certain,
                        logits.get() + static_cast<std::size_t>(node) * static_cast<std::size_t>(vocab) +
                            tokens[static_cast<std::size_t>(node) + 2]);
        }
        const auto keep = [&](const std::vector<std::int32_t>& numbers) {
          const std::shared_ptr<void> memory = device.allocate(numbers.size() * sizeof(std::int32_t));
          device.upload(numbers.data(), numbers.size() * sizeof(std::int32_t), memory.get());
          return std::shared_ptr<std::int32_t>(memory, static_cast<std::int32_t*>(memory.get()));
        };
        const auto d_tokens = keep(tokens), d_parents = keep(parents), d_q_rows = keep(q_rows),
                   d_from = keep(from), d_to = keep(to), d_position = keep({40, 0});
        const auto room = [&](std::size_t bytes_) { return device.allocate(bytes_); };
        const auto weights = room(count * static_cast<std::size_t>(vocab) * sizeof(float)),
                   laws = room(count * sizeof(Law));
        const auto residual = room(static_cast<std::size_t>(vocab) * sizeof(double)),
                   verdict = room(sizeof(Verdict)),
                   sums = room(count * static_cast<std::size_t>(chunks_of(vocab)) * sizeof(double)),
                   best = room(count * static_cast<std::size_t>(row_pieces(vocab)) * sizeof(simt::u64));
        const auto arrivals = filled<std::uint32_t>(device, count, [](std::uint32_t) { return 0u; });
        const auto kv = filled<std::uint16_t>(
            device,
            2 * static_cast<std::size_t>(layers * kv_heads) * static_cast<std::size_t>(slots * stride),
            small_bf16);
        const auto step = [=](int) {
          const Stream stream = stand->device().stream();
          Standardise law;
          law.logits = logits.get();
          law.rows = rows;
          law.columns = law.vocab = vocab;
          law.greedy = greedy;
          law.weights = static_cast<float*>(weights.get());
          law.laws = static_cast<Law*>(laws.get());
          law.sums = static_cast<double*>(sums.get());
          law.meeting = {static_cast<simt::u64*>(best.get()), arrivals.get()};
          start_laws(law, [&](const char*, const auto& arguments) { launch(arguments, stream); });
          Accept accept;
          accept.nodes = rows;
          accept.vocab = vocab;
          accept.tokens = d_tokens.get();
          accept.parents = d_parents.get();
          accept.p = law.weights;
          accept.p_laws = law.laws;
          accept.p_sums = law.sums;
          accept.q_rows = d_q_rows.get();
          if (last > 0) {
            accept.q = q.get();
            accept.q_laws = static_cast<const Law*>(q_laws.get());
          }
          accept.key = PhiloxKey{};
          accept.position = reinterpret_cast<const std::int64_t*>(d_position.get());
          accept.residual = static_cast<double*>(residual.get());
          accept.meeting = law.meeting;
          accept.verdict = static_cast<Verdict*>(verdict.get());
          launch(accept, stream);
          if (!from.empty())
            launch(MoveSlots{kv.get(), 2 * layers * kv_heads, slots, stride, d_from.get(), d_to.get(),
                             static_cast<int>(from.size())},
                   stream);
        };
        return Launches{step, {}};
      });
}

}  // namespace
}  // namespace cuda

std::vector<KernelTrial> cuda_kernel_trials(const CudaBackendOptions& options) {
  using namespace cuda;
  const auto stand = std::make_shared<Stand>(options.simulated ? make_simulated_device()
                                                               : std::make_unique<Gpu>(options.device));
  const bool simulated = options.simulated;
  std::vector<KernelTrial> trials;
  add_bandwidth(trials, stand);
  // Shapes of layers of Llama-3.1-8B, then of SmolLM2-135M.
  const Shapes shapes = simulated ? Shapes{{48, 640}} : Shapes{{28672, 4096}, {4096, 14336}, {6144, 4096},
                                                               {4096, 4096},  {3072, 576},   {576, 1536}};
  const std::vector<int> rows =
      simulated ? std::vector<int>{1, 30} : std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128};
  for (const auto& [out, in] : shapes) add_linear(trials, stand, out, in, rows);
  if (!simulated) add_cublaslt_trials(options.device, shapes, rows, trials);
  for (const bool greedy : {false, true}) {
    for (const int n : simulated ? std::vector<int>{5} : std::vector<int>{1, 8, 32})
      add_accept(trials, stand, simulated ? 300 : 128256, n, greedy);
  }
  return trials;
}

}  // namespace speclab
