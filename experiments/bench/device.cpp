#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/backend/cuda/kernels/place.h"
#include "core/measure/clock.h"
#include "experiments/bench/bench.h"
#include "experiments/run/forward_times.h"

namespace speclab::bench {
namespace {

using cuda::Place;

/// A device with a stream and a clock of its own. Launches on the simulated one are timed as they run there.
class Stand {
 public:
  Stand(bool simulated, int ordinal)
      : gpu_(simulated ? nullptr : std::make_unique<cuda::Gpu>(ordinal)),
        machine_(simulated ? std::make_unique<simt::Machine>() : nullptr) {
    if (gpu_) timer_.emplace(*gpu_);
  }
  Place place() const { return gpu_ ? Place(*gpu_) : Place(*machine_); }
  bool simulated() const { return !gpu_; }

  /// Seconds of one of many launches, which follow one another without a wait. `launch(i)` starts the i-th.
  double time(const std::function<void(int)>& launch) {
    const double once = batch(1, launch);
    return batch(simulated() ? 1 : std::clamp(static_cast<int>(2e-3 / once), 1, 500), launch);
  }

 private:
  double batch(int count, const std::function<void(int)>& launch) {
    const std::int64_t begun = wall_now_ns();
    if (timer_) timer_->begin();
    for (int i = 0; i < count; ++i) launch(i);
    return (timer_ ? timer_->end() : 1e-9 * static_cast<double>(wall_now_ns() - begun)) / count;
  }
  std::unique_ptr<cuda::Gpu> gpu_;
  std::unique_ptr<simt::Machine> machine_;
  std::optional<cuda::GpuTimer> timer_;
};
using StandPtr = std::shared_ptr<Stand>;

/// Memory of the device, full of small numbers that repeat after a megabyte: of zeros a chip would be faster.
template <typename T>
std::shared_ptr<T> filled(const Place& place, std::size_t count, T (*number)(std::uint32_t)) {
  std::vector<T> part(std::min<std::size_t>(count, (std::size_t{1} << 20) / sizeof(T)));
  for (std::size_t i = 0; i < part.size(); ++i)
    part[i] = number(static_cast<std::uint32_t>(i) * 2654435761u >> 8);
  const std::shared_ptr<void> memory = place.allocate(count * sizeof(T));
  T* data = static_cast<T*>(memory.get());
  for (std::size_t at = 0; at < count; at += part.size())
    place.upload(part.data(), std::min(part.size(), count - at) * sizeof(T), data + at);
  return {memory, data};
}
std::uint16_t small_bf16(std::uint32_t random) {
  return float_to_bf16(static_cast<float>(random & 0xffff) * 0x1p-22f - 0x1p-7f);
}
float small_float(std::uint32_t random) { return static_cast<float>(random & 0xffff) * 0x1p-13f - 4; }

/// What is timed: the i-th of many launches, and what there is to say about it.
struct Timed {
  std::function<void(int)> launch;
  std::string label;
};
/// A launch goes before the stand that holds its memory.
struct Held {
  StandPtr stand;
  Timed timed;
};

void add_on(const StandPtr& stand, const Setting& setting, const std::string& name, double bytes,
            double flops, const std::function<Timed()>& prepare) {
  const auto held = std::make_shared<Held>(Held{stand, {}});
  add(
      name,
      [=](benchmark::State& state) {
        if (!held->timed.launch) held->timed = prepare();
        for (auto _ : state) state.SetIterationTime(held->stand->time(held->timed.launch));
        count_work(state, setting, bytes, flops);
        if (!held->timed.label.empty()) state.SetLabel(held->timed.label);
      },
      Clock::kManual)
      ->Iterations(1)
      ->Repetitions(kDeviceRepeats);
}

void add_bandwidth(const StandPtr& stand, const Setting& setting) {
  const std::size_t bytes = stand->simulated() ? std::size_t{64} << 10 : std::size_t{1} << 30;
  add_on(stand, setting, "cuda/read", static_cast<double>(bytes), 0, [=] {
    const int blocks = stand->simulated() ? 1 : 4 * 132;
    const auto data =
        filled<std::uint32_t>(stand->place(), bytes / 4, [](std::uint32_t random) { return random; });
    const auto out =
        filled<std::uint32_t>(stand->place(), static_cast<std::size_t>(blocks) * cuda::kSpeedThreads,
                              [](std::uint32_t) { return 0u; });
    return Timed{[=](int) {
                   launch(cuda::ReadAll{data.get(), bytes / 16, blocks, out.get()}, stand->place().stream());
                 },
                 {}};
  });
  add_on(stand, setting, "cuda/copy", 2 * static_cast<double>(bytes), 0,
         [=] {  // what is read and what is written
           const auto from = filled<std::uint16_t>(stand->place(), bytes / 2, small_bf16),
                      to = filled<std::uint16_t>(stand->place(), bytes / 2, small_bf16);
           return Timed{[=](int) { stand->place().copy(from.get(), bytes, to.get()); }, {}};
         });
}

std::string label_of(const cuda::LinearFree& form) {
  return fmt::format("{} {}{}", form.slices,
                     form.slices == 1 ? "slice"
                     : form.many      ? "slices in blocks"
                                      : "slices in warps",
                     form.in_y   ? ", added as they come"
                     : form.many ? ", many"
                                 : "");
}
/// The fastest of the forms of a layer, without regard for the bits. `launch_as(i, form)` starts the i-th
/// launch.
cuda::LinearFree fastest(Stand& stand, const cuda::Linear& layer,
                         const std::function<void(int, const cuda::LinearFree&)>& launch_as) {
  cuda::LinearFree best;
  double least = 0;
  for (const cuda::LinearFree& form : cuda::free_forms(layer)) {
    const double seconds = stand.time([&](int i) { launch_as(i, form); });
    if (least == 0 || seconds < least) least = seconds, best = form;
  }
  return best;
}

/// One layer of `rows` rows, its activations rounded before, as models run it and in the fastest form that
/// need not have the bits of other numbers of rows. The weights of a launch are not those of the launches
/// before it while there is room for others, so that they come from memory and not from a cache.
void add_linear(const StandPtr& stand, const Setting& setting, int out, int in,
                const std::vector<int>& all_rows) {
  using Weights = std::vector<std::shared_ptr<std::uint16_t>>;
  auto weights = std::make_shared<Weights>();
  const std::size_t elements = cuda::weight_elements(out, in);
  const std::size_t copies =
      stand->simulated() ? 1 : std::clamp<std::size_t>((std::size_t{256} << 20) / (2 * elements), 1, 96);
  for (const int rows : all_rows) {
    for (const bool free : {false, true}) {
      add_on(stand, setting,
             fmt::format("cuda/linear{}/rows:{}/out:{}/in:{}", free ? "_free" : "", rows, out, in),
             2.0 * out * in, 2.0 * out * in * rows, [=] {
               while (weights->size() < copies)
                 weights->push_back(filled<std::uint16_t>(stand->place(), elements, small_bf16));
               const auto activations =
                   filled<std::uint16_t>(stand->place(), cuda::activation_elements(rows, in), small_bf16);
               const auto y =
                   filled<float>(stand->place(),
                                 static_cast<std::size_t>(rows) * static_cast<std::size_t>(out), small_float);
               cuda::Linear layer;
               layer.out = out;
               layer.in = in;
               layer.activations = activations.get();
               layer.rows = rows;
               layer.y = y.get();
               layer.y_stride = out;
               const cuda::LinearPlan plan = free ? cuda::free_meeting(layer) : cuda::plan_of(out, in, rows);
               const auto partials = filled<float>(stand->place(), plan.partials, small_float);
               const auto arrivals = filled<std::uint32_t>(
                   stand->place(), static_cast<std::size_t>(plan.meeting), [](std::uint32_t) { return 0u; });
               layer.partials = partials.get();
               layer.arrivals = arrivals.get();
               const auto launch_as = [=, kept = std::vector<std::shared_ptr<void>>{
                                              activations, y, partials, arrivals}](int i, auto form) {
                 form.weights = (*weights)[static_cast<std::size_t>(i) % copies].get();
                 launch(form, stand->place().stream());
               };
               if (!free) return Timed{[=](int i) { launch_as(i, layer); }, {}};
               const cuda::LinearFree form = fastest(*stand, layer, launch_as);
               return Timed{[=](int i) { launch_as(i, form); }, label_of(form)};
             });
    }
  }
}

/// What follows the target's forward in a step: laws of all rows, the verdict on a draft, and moving what was
/// accepted. The draft is two chains side by side, one of them right: half of the nodes are accepted, every
/// one has to be moved.
void add_accept(const StandPtr& stand, const Setting& setting, int vocab, int rows, bool greedy) {
  const int layers = stand->simulated() ? 1 : 32, kv_heads = stand->simulated() ? 1 : 8,
            stride = cuda::kv_stride(128), slots = 256;
  const double bytes = 4.0 * vocab * rows * (greedy ? 1 : 3);
  add_on(stand, setting,
         fmt::format("cuda/accept_sample_compact{}/vocab:{}/rows:{}", greedy ? "_greedy" : "", vocab, rows),
         bytes, 0, [=] {
           const Place place = stand->place();
           const auto count = static_cast<std::size_t>(rows);
           std::vector<std::int32_t> tokens(count), parents(count), q_rows(count, -1), from, to;
           for (int node = 0; node < rows; ++node) {
             tokens[static_cast<std::size_t>(node)] = 7 + node;
             parents[static_cast<std::size_t>(node)] = node == 0 ? -1 : std::max(0, node - 2);
           }
           for (int node = 2; node < rows; node += 2) from.push_back(node), to.push_back(node / 2);
           const auto logits = filled<float>(place, count * static_cast<std::size_t>(vocab), small_float);
           for (int node = 0; node + 2 < rows; node += 2) {  // the token of the child is nearly certain
             const float certain = 60;
             place.upload(&certain, sizeof certain,
                          logits.get() + static_cast<std::size_t>(node) * static_cast<std::size_t>(vocab) +
                              tokens[static_cast<std::size_t>(node) + 2]);
           }
           const auto keep = [&](const std::vector<std::int32_t>& numbers) {
             const std::shared_ptr<void> memory = place.allocate(numbers.size() * sizeof(std::int32_t));
             place.upload(numbers.data(), numbers.size() * sizeof(std::int32_t), memory.get());
             return std::shared_ptr<std::int32_t>(memory, static_cast<std::int32_t*>(memory.get()));
           };
           const auto d_tokens = keep(tokens), d_parents = keep(parents), d_q_rows = keep(q_rows),
                      d_from = keep(from), d_to = keep(to), d_position = keep({40, 0});
           const auto room = [&](std::size_t bytes_) { return place.allocate(bytes_); };
           const auto weights = room(count * static_cast<std::size_t>(vocab) * sizeof(float)),
                      laws = room(count * sizeof(cuda::Law));
           const auto residual = room(static_cast<std::size_t>(vocab) * sizeof(double)),
                      verdict = room(sizeof(cuda::Verdict));
           const auto kv = filled<std::uint16_t>(
               place,
               2 * static_cast<std::size_t>(layers * kv_heads) * static_cast<std::size_t>(slots * stride),
               small_bf16);
           const auto step = [=](int) {
             const cuda::Stream stream = place.stream();
             cuda::Standardise law;
             law.logits = logits.get();
             law.rows = rows;
             law.columns = law.vocab = vocab;
             law.greedy = greedy;
             law.weights = static_cast<float*>(weights.get());
             law.laws = static_cast<cuda::Law*>(laws.get());
             launch(law, stream);
             cuda::Accept accept;
             accept.nodes = rows;
             accept.vocab = vocab;
             accept.tokens = d_tokens.get();
             accept.parents = d_parents.get();
             accept.p = law.weights;
             accept.p_laws = law.laws;
             accept.q_rows = d_q_rows.get();
             accept.key = PhiloxKey{};
             accept.position = reinterpret_cast<const std::int64_t*>(d_position.get());
             accept.residual = static_cast<double*>(residual.get());
             accept.verdict = static_cast<cuda::Verdict*>(verdict.get());
             launch(accept, stream);
             if (!from.empty())
               launch(cuda::MoveSlots{kv.get(), 2 * layers * kv_heads, slots, stride, d_from.get(),
                                      d_to.get(), static_cast<int>(from.size())},
                      stream);
           };
           return Timed{step, {}};
         });
}

/// A forward of one row of the draft, with its logits back on the host: what a step of a draft costs a
/// strategy that asks for it. "cuda/draft_step", each kernel launched; "cuda/draft_step_persistent", all of
/// them as one launch.
void add_draft_step(const Setting& setting, const std::string& kernels) {
  if (!setting.has_draft) return;
  struct Held {
    std::shared_ptr<ModelSet> models;
    std::unique_ptr<ForwardTimer> timer;
  };
  const auto held = std::make_shared<Held>();
  add(
      kernels == "launches" ? "cuda/draft_step" : "cuda/draft_step_" + kernels,
      [=](benchmark::State& state) {
        if (!held->models) {
          BackendChoice backend = setting.backend;
          backend.kernels = kernels;
          held->models = kernels == setting.backend.kernels ? setting.models : load(setting, backend);
        }
        const Model& draft = *held->models->draft("draft");
        const bool simulated = held->models->backend().name() != "cuda";
        if (!held->timer) held->timer = std::make_unique<ForwardTimer>(draft, simulated ? 2 : 128, 1);
        held->timer->time(1);
        std::vector<double> times;
        for (int i = 0; i < (simulated ? 1 : 50); ++i) times.push_back(held->timer->time(1));
        std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                         times.end());
        for (auto _ : state) state.SetIterationTime(1e-9 * times[times.size() / 2]);
        count_work(state, setting, static_cast<double>(draft.weight_bytes()), 0);
      },
      Clock::kManual)
      ->Iterations(1)
      ->Repetitions(kDeviceRepeats);
}

}  // namespace

void add_device(const Setting& setting, int device) {
  const bool simulated = setting.models->backend().name() != "cuda";
  const auto stand = std::make_shared<Stand>(simulated, device);
  add_bandwidth(stand, setting);
  // Those of Llama-3.1-8B, then of SmolLM2-135M.
  const std::vector<std::pair<int, int>> shapes =
      simulated ? std::vector<std::pair<int, int>>{{48, 640}}
                : std::vector<std::pair<int, int>>{{28672, 4096}, {4096, 14336}, {6144, 4096},
                                                   {4096, 4096},  {3072, 576},   {576, 1536}};
  const std::vector<int> rows =
      simulated ? std::vector<int>{1, 30} : std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128};
  for (const auto& [out, in] : shapes) add_linear(stand, setting, out, in, rows);
  if (!simulated) add_cublaslt(setting, device, shapes, rows);
  for (const bool greedy : {false, true}) {
    for (const int n : simulated ? std::vector<int>{5} : std::vector<int>{1, 8, 32})
      add_accept(stand, setting, simulated ? 300 : 128256, n, greedy);
  }
  for (const char* kernels : {"launches", "persistent"}) add_draft_step(setting, kernels);
}

}  // namespace speclab::bench
