#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cpu/cpu_topology.h"
#include "core/backend/cpu/thread_pool.h"
#include "core/backend/cuda/runtime/cublaslt.h"
#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/runtime/launch.h"
#include "core/backend/cuda/simulator/machine.h"
#include "core/backend/cuda/program/planned.h"
#include "core/backend/cuda/program/program.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab {
namespace cuda {
namespace {

// The operations as launches, in one stream. On a simulated GPU (no `gpu_`) launches are done when they
// return. With persistent kernels launches that can be tasks wait (waiting_) until something needs what they
// do, and then are one launch.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, CudaKernels kernels)
      : pool_(options.simulated     ? 1
              : options.threads > 0 ? options.threads
                                    : cpu::usable_threads()) {
    if (options.simulated) {
      machine_ = std::make_shared<simt::Machine>();
      stream_.machine = machine_.get();
      class_ = name_ = "host-simt";
      device_ = "simulated GPU on " + cpu::cpu_model_name();
    } else {
      gpu_ = std::make_unique<Gpu>(options.device);
      stream_.device = gpu_->stream();
      class_ = fmt::format("cuda-sm{}", gpu_->architecture());
      name_ = "cuda";
      device_ = gpu_->name();
    }
    if (options.cublaslt) {
      if (gpu_) library_ = std::make_unique<CublasLt>(*gpu_);
      class_ += "-cublaslt";
      prompt_rows_ = gpu_ ? PromptRows{kMostRows + 1, 2048} : PromptRows{17, 32};
    }
    set_kernels(kernels);
  }

  std::string_view name() const override { return name_; }
  std::string_view numerics_class() const override { return class_; }
  std::string_view device_name() const override { return device_; }
  int threads() const override { return pool_.threads(); }
  int kv_number_bytes() const override { return sizeof(Bf16); }

  DeviceSpeed measure_speed() override {
    // Simulated, these are what the simulation does, at sizes that it can bear.
    const bool simulated = !gpu_;
    constexpr int kTimes = 8;
    const int blocks = simulated ? 1 : 4 * 132;
    Buffer<simt::u32> read = allocate_buffer<simt::u32>(static_cast<std::size_t>(blocks) * kSpeedThreads);
    Buffer<float> sums = allocate_buffer<float>(read.size());
    const std::size_t bytes = simulated ? std::size_t{64} << 10 : std::size_t{1} << 30;
    Buffer<simt::u32> data = allocate_buffer<simt::u32>(bytes / sizeof(simt::u32));
    const ReadAll reading{data.data(), bytes / 16, blocks, read.data()};
    const MultiplyAll products{simulated ? 4 : 4096, blocks, sums.data()};
    DeviceSpeed speed;
    for (int pass = 0; pass < 5; ++pass) {
      speed.read_bytes_per_second =
          std::max(speed.read_bytes_per_second,
                   kTimes * static_cast<double>(bytes) / seconds(kTimes, "read_all", reading, read));
      speed.peak_flops = std::max(speed.peak_flops, kTimes * operations_of(products) /
                                                        seconds(kTimes, "multiply_all", products, sums));
    }
    return speed;
  }

  bool host_memory() const override { return false; }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    submit();  // who asks for memory may give back what tasks use
    if (gpu_) return gpu_->allocate(bytes);
    return {machine_->allocate(bytes), [machine = machine_](void* p) { machine->release(p); }};
  }
  void upload(const void* host, std::size_t bytes, void* to) override {
    SPECLAB_CHECK(!recording_, "an upload of {} bytes in a recording", bytes);
    submit();
    if (gpu_) gpu_->upload(host, bytes, to);
    else if (bytes > 0) std::memcpy(to, host, bytes);
  }
  void download(const void* from, std::size_t bytes, void* host) override {
    SPECLAB_CHECK(!recording_, "a download of {} bytes in a recording", bytes);
    submit();
    if (gpu_) gpu_->download(from, bytes, host);
    else if (bytes > 0) std::memcpy(host, from, bytes);
  }

  PackedMatrix pack(int out, int in, const std::function<void(int, int, Bf16*)>& read) override {
    constexpr std::size_t kChunk = std::size_t{32} << 20;  // bytes of rows on the way
    PackedMatrix matrix{out, in, nullptr, weight_elements(out, in) * sizeof(Bf16)};
    matrix.data = allocate(matrix.bytes);
    reserve(out, in);
    const auto row = static_cast<std::size_t>(in) * sizeof(Bf16);
    const int most =
        static_cast<int>(std::clamp<std::size_t>(kChunk / row, kTileOut, 1 << 20)) / kTileOut * kTileOut;
    const int together = std::min(out, most);
    std::vector<Bf16> rows(static_cast<std::size_t>(together) * static_cast<std::size_t>(in));
    Buffer<Bf16> there = allocate_buffer<Bf16>(rows.size());
    for (int first = 0; first < out; first += together) {
      const int count = std::min(together, out - first), tiles = tiles_of(count, kTileOut);
      std::vector<std::exception_ptr> failed(static_cast<std::size_t>(pool_.threads()));
      pool_.parallel(tiles, [&](int tile, int thread) {
        try {
          const int begin = tile * kTileOut;
          read(first + begin, first + std::min(begin + kTileOut, count),
               rows.data() + static_cast<std::size_t>(begin) * static_cast<std::size_t>(in));
        } catch (...) {
          failed[static_cast<std::size_t>(thread)] = std::current_exception();
        }
      });
      for (const auto& error : failed) {
        if (error) std::rethrow_exception(error);
      }
      upload(rows.data(), static_cast<std::size_t>(count) * row, there.data());
      start("pack_weights",
            PackWeights{there.data(), first, count, out, in, static_cast<Bf16*>(matrix.data.get())});
    }
    return matrix;
  }

  KvStore allocate_kv(int layers, int kv_heads, int head_dim, int slots) override {
    constexpr int kMostHeadDim = kSplit * kKvPiece;  // a split's threads have a piece each
    if (head_dim > kMostHeadDim)
      throw Error({"dimensions of a head", std::to_string(head_dim),
                   fmt::format("at most {} on a GPU", kMostHeadDim), "Use --backend cpu."});
    KvStore kv{layers, kv_heads, head_dim, slots, 0, nullptr, 0};
    kv.bytes_per_position = 2 * sizeof(Bf16) * static_cast<std::uint64_t>(layers) *
                            static_cast<std::uint64_t>(kv_heads) *
                            static_cast<std::uint64_t>(kv_stride(head_dim));
    if (__builtin_mul_overflow(kv.bytes_per_position, static_cast<std::uint64_t>(slots), &kv.bytes))
      kv.bytes = UINT64_MAX;
    kv.data = allocate(kv.bytes);
    return kv;
  }

  void copy_kv(const KvStore& from, int slots, KvStore& to) override {
    SPECLAB_CHECK(slots <= std::min(from.slots, to.slots) && from.layers == to.layers &&
                      from.kv_heads == to.kv_heads && from.head_dim == to.head_dim,
                  "{} slots of {} into {}", slots, from.slots, to.slots);
    if (slots == 0) return;
    start("copy_kv", CopyKv{static_cast<const Bf16*>(from.data.get()), static_cast<Bf16*>(to.data.get()),
                            planes(from), from.slots, to.slots, kv_stride(from.head_dim), slots});
  }

  void linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) override {
    in_portions(n, [&](int first, int rows) {
      start("round_rows", RoundRows{x + at(first, w.in), w.in, rows, w.in, activations_.data()});
      product(w, rows, y + at(first, w.out), accumulate);
    });
  }

  PromptRows prompt_rows() const override { return prompt_rows_; }
  void prompt_linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) override {
    SPECLAB_CHECK(n <= prompt_rows_.most && !recording_, "{} rows of a prompt, at most {}", n,
                  prompt_rows_.most);
    if (n == 0) return;
    simt::u16* weights = room(plain_weights_, at(w.out, w.in));
    simt::u16* plain = room(plain_, at(n, w.in));
    start("unpack_weights", UnpackWeights{static_cast<const Bf16*>(w.data.get()), w.out, w.in, weights});
    start("round_plain", RoundPlain{x, n, w.in, plain});
    const PlainProduct product{weights, plain, y, w.out, w.in, n, accumulate};
    if (library_) library_->product(product);
    else plain_product(product);
  }

  void norm_linear(const NormForm& form, const float* x, const PackedMatrix& w, int n, float* /*scratch*/,
                   float* y) override {
    in_portions(n, [&](int first, int rows) {
      const NormedRow norm = round_norm(form, x + at(first, w.in), rows, w.in);
      product(w, rows, y + at(first, w.out), false, norm);
    });
  }

  void feed_forward(const NormForm& norm, const float* x, const FeedForward& form, int n, float* normed,
                    float* raised, float* activated, float* y, bool accumulate) override {
    const PackedMatrix& up = *form.up;
    if (!form.gated || !can_activate(up.out, up.in))
      return Backend::feed_forward(norm, x, form, n, normed, raised, activated, y, accumulate);
    in_portions(n, [&](int first, int rows) {
      const NormedRow normed_row = round_norm(norm, x + at(first, up.in), rows, up.in);
      Linear gating = linear_of(up, rows);
      gating.norm = normed_row;
      gating.bias = form.up_bias;
      gating.activated = activated_.data();
      gating.function = form.function;
      start("linear", gating);
      Linear product = linear_of(*form.down, rows);
      product.activations = activated_.data();
      product.y = y + at(first, form.down->out);
      product.y_stride = form.down->out;
      product.accumulate = accumulate;
      start("linear", product);
    });
  }

  void activate_linear(Activation f, bool gated, const float* x, const PackedMatrix& w, int n,
                       float* /*scratch*/, float* y, bool accumulate) override {
    in_portions(n, [&](int first, int rows) {
      start("activate", Activate{f, gated, x + at(first, gated ? 2 * w.in : w.in), rows, w.in, nullptr,
                                 activations_.data()});
      product(w, rows, y + at(first, w.out), accumulate);
    });
  }

  void attention_linear(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                        const AttentionForm& form, const PackedMatrix& w, float* scratch, float* y,
                        bool accumulate) override {
    if (rows.n > kMostRows)
      return Backend::attention_linear(qkv, heads, kv, layer, rows, form, w, scratch, y, accumulate);
    if (rows.n == 0) return;
    attend(qkv, heads, kv, layer, rows, form, nullptr, activations_.data());
    product(w, rows.n, y, accumulate);
  }

  void gather(const PackedMatrix& table, const Token* tokens, int n, float* out) override {
    if (n > 0) start("gather", Gather{static_cast<const Bf16*>(table.data.get()), table.in, tokens, n, out});
  }

  void rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) override {
    Norm norm = norm_of(NormOf::kRms, x, weight, eps, n, d);
    norm.x_stride = norm.out_stride = d;
    norm.out = out;
    if (n > 0) start("rms_norm", norm);
  }

  void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d,
                  float* out) override {
    Norm norm = norm_of(NormOf::kLayer, x, weight, eps, n, d);
    norm.x_stride = norm.out_stride = d;
    norm.bias = bias;
    norm.out = out;
    if (n > 0) start("layer_norm", norm);
  }

  void rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n,
                      int d) override {
    Norm norm = norm_of(NormOf::kRms, x, weight, eps, n, d);
    norm.x_stride = norm.out_stride = stride;
    norm.heads = heads;
    norm.out = x;
    if (n > 0) start("rms_norm", norm);
  }

  void rope_and_store(float* qkv, int heads, const Rotation& rotation, const RowsInFlight& rows, KvStore& kv,
                      int layer) override {
    if (rows.n == 0) return;
    start("rope_and_store",
          RopeStore{qkv, rows.n, heads, kv.kv_heads, kv.head_dim, rotation.cos, rotation.sin,
                    rotation.dims / 2, rows.positions, rows.slots, layer_of(kv, layer)});
  }

  void attention(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                 float* out, const AttentionForm& form) override {
    if (rows.n > 0) attend(qkv, heads, kv, layer, rows, form, out, nullptr);
  }

  void silu_multiply(const float* gate_up, int n, int ffn, float* out) override {
    activate(Activation::kSilu, true, gate_up, n, ffn, out);
  }
  void activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) override {
    if (n > 0) start("activate", Activate{f, gated, x, n, ffn, out, nullptr});
  }
  void add_bias(const float* x, int n, int d, float* y) override {
    elementwise(ElementwiseOf::kAddBias, x, 1, n, d, y);
  }
  void add(const float* x, int n, int d, float* y) override {
    elementwise(ElementwiseOf::kAdd, x, 1, n, d, y);
  }
  void scale(float factor, int n, int d, float* x) override {
    elementwise(ElementwiseOf::kScale, nullptr, factor, n, d, x);
  }
  void soft_cap(float cap, int n, int d, float* x) override {
    elementwise(ElementwiseOf::kSoftCap, nullptr, cap, n, d, x);
  }

  void copy_rows(const float* x, const std::int32_t* rows, int n, int d, float* out) override {
    if (n > 0) start("copy_rows", CopyRows{x, rows, n, d, out});
  }
  void fill_columns(float value, int begin, int n, int d, float* x) override {
    if (n > 0 && begin < d) start("fill_columns", FillColumns{x, n, d, begin, value});
  }

  void move_slots(KvStore& kv, std::span<const std::int32_t> from,
                  std::span<const std::int32_t> to) override {
    SPECLAB_CHECK(from.size() == to.size(), "{} slots to {}", from.size(), to.size());
    if (from.empty()) return;
    moves_.assign(from.begin(), from.end());
    moves_.insert(moves_.end(), to.begin(), to.end());
    const std::int32_t* moves = stage(moves_, staged_moves_);
    start("move_slots",
          MoveSlots{static_cast<Bf16*>(kv.data.get()), planes(kv), kv.slots, kv_stride(kv.head_dim), moves,
                    moves + from.size(), static_cast<int>(from.size())});
  }

  std::shared_ptr<Plan> make_plan(const PlanShape& shape) override {
    constexpr std::size_t kBytes = kPlanRing * sizeof(PlanRound);
    return cuda::make_plan(*this, shape, gpu_ ? gpu_->allocate_shared(kBytes) : allocate(kBytes));
  }
  void plan_start(Plan& plan, const PlanStart& begin) override { start_plan(*this, plan, begin); }
  void plan_draft_rows(Plan& plan, int depth) override { start("lay_rows", draft_rows_of(plan, depth)); }
  void plan_draw(Plan& plan, int depth) override {
    start("standardise", draft_laws_of(plan, depth));
    if (plan.shape.level_begin(depth + 1) - plan.shape.level_begin(depth) == 1)
      start("sample", draft_token_of(plan, depth));
    else start("siblings", draft_tokens_of(plan, depth));
  }
  void plan_target_rows(Plan& plan) override {
    submit();  // what drafts is one launch, whatever the target is
    start("lay_rows", target_rows_of(plan));
  }
  // None of these can wait, and with the first of them everything before it begins.
  void plan_settle(Plan& plan) override {
    start("standardise", target_laws_of(plan));
    if (looks_at_raw(plan.shape)) start("standardise", raw_laws_of(plan));
    start("accept", accept_of(plan));
    if (!plan.shape.is_chain()) {
      if (plan.target_cache.data)
        start("move_accepted", move_of(plan, plan.target_cache, plan.shape.target_capacity));
      if (plan.draft_cache.data)
        start("move_accepted", move_of(plan, plan.draft_cache, plan.shape.draft_capacity));
    }
    start("settle", settle_of(plan));
  }
  void plan_stamp(Plan& plan, int which) override { start("stamp", stamp_of(plan, which)); }
  void plan_continue(Plan& plan) override {
    SPECLAB_CHECK(recording_ && recording_->loop, "the end of a loop without a loop");
    start("continue_loop", continue_of(plan, conditional_));
  }

  std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) override {
    SPECLAB_CHECK(!recording_, "a recording in a recording");
    submit();
    const auto graph = std::make_shared<Graph>();
    graph->loop = loop;
    launches_ = std::make_shared<Launches>();
    recording_ = graph;
    for (const auto& memory : {activations_.memory(), activated_.memory(), partials_.memory(),
                               arrivals_.memory(), arrived_.memory()})
      keep_for_graph(memory);
    try {
      if (gpu_) conditional_ = gpu_->begin_capture(loop);
      else if (loop) conditional_ = machine_->make_conditional();
      operations();
      submit();
    } catch (...) {
      waiting_.clear();
      recording_.reset();
      if (gpu_) gpu_->drop_capture();
      throw;
    }
    recording_.reset();
    launches_->conditional = loop ? conditional_ : 0;
    if (gpu_) graph->own = gpu_->end_capture(graph->nodes.size());
    else graph->own = std::exchange(launches_, nullptr);
    return graph;
  }
  void replay(const Graph& graph) override {
    SPECLAB_CHECK(!recording_, "a replay in a recording");
    submit();
    if (gpu_) {
      gpu_->started("graph");
      gpu_->replay(graph.own.get());
      return;
    }
    const auto& launches = *static_cast<const Launches*>(graph.own.get());
    constexpr std::uint32_t kUnset = 2;
    do {
      if (graph.loop) machine_->set_conditional(launches.conditional, kUnset);
      for (const auto& one : launches.in_order) one();
      SPECLAB_CHECK(!graph.loop || machine_->conditional(launches.conditional) != kUnset,
                    "a loop that never ends");
    } while (graph.loop && machine_->conditional(launches.conditional) != 0);
  }
  bool idle() override { return waiting_.empty() && (!gpu_ || gpu_->idle()); }
  void submit() override {
    if (waiting_.empty()) return;
    const std::vector<Task> tasks = std::exchange(waiting_, {});
    if (worth_one_launch(tasks, kernels_)) return start_together(tasks);
    for (const Task& task : tasks) start_one(describe(task), task);
  }

 protected:
  void keep_for_graph(const std::shared_ptr<void>& memory) override {
    if (recording_ && memory &&
        std::find(recording_->kept.begin(), recording_->kept.end(), memory) == recording_->kept.end())
      recording_->kept.push_back(memory);
  }

 private:
  // A graph of the simulated GPU.
  struct Launches {
    std::vector<std::function<void()>> in_order;
    std::uint64_t conditional = 0;
  };
  static std::size_t at(int row, int width) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
  }
  static int planes(const KvStore& kv) { return 2 * kv.layers * kv.kv_heads; }
  static KvLayer layer_of(const KvStore& kv, int layer) {
    KvLayer of{nullptr, kv.slots, kv_stride(kv.head_dim)};
    of.data = static_cast<Bf16*>(kv.data.get()) +
              2 * static_cast<std::size_t>(layer) * static_cast<std::size_t>(kv.kv_heads) * of.plane();
    return of;
  }
  static Norm norm_of(NormOf kind, const float* x, const float* weight, float eps, int rows, int d) {
    Norm norm;
    norm.kind = kind;
    norm.x = x;
    norm.weight = weight;
    norm.eps = eps;
    norm.rows = rows;
    norm.d = d;
    return norm;
  }
  void attend(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
              const AttentionForm& form, float* out, simt::u16* activations) {
    Attention a;
    a.qkv = qkv;
    a.n = rows.n;
    a.heads = heads;
    a.kv_heads = kv.kv_heads;
    a.head_dim = kv.head_dim;
    a.kv = layer_of(kv, layer);
    a.committed = rows.committed;
    a.earlier = rows.earlier;
    a.committed_at = rows.committed_at;
    a.positions = rows.positions;
    a.path_begin = rows.path_begin;
    a.paths = rows.paths;
    a.scale = form.scale > 0 ? form.scale : 1.0f / std::sqrt(static_cast<float>(kv.head_dim));
    a.soft_cap = form.soft_cap;
    a.window = form.window;
    a.sums = room(sums_, a.sums_size());
    a.mixed = room(mixed_, a.mixed_size());
    a.out = out;
    a.activations = activations;
    start("attention_splits", AttentionSplits{a});
    start("attention_sum", AttentionSum{a});
  }
  // Of so many rows as many as fit, one portion after the other.
  template <typename Portion>
  static void in_portions(int n, const Portion& portion) {
    for (int first = 0; first < n; first += kMostRows) portion(first, std::min(kMostRows, n - first));
  }
  // norm(x), or x itself, into activations_, unless the product is to norm the row that it gets.
  NormedRow round_norm(const NormForm& form, const float* x, int rows, int width) {
    const NormOf kind = form.layer ? NormOf::kLayer : NormOf::kRms;
    if (form.weight == nullptr) {
      start("round_rows", RoundRows{x, width, rows, width, activations_.data()});
      return {};
    }
    if (can_norm(rows, width)) return {x, kind, form.weight, form.bias, form.eps};
    Norm norm = norm_of(kind, x, form.weight, form.eps, rows, width);
    norm.x_stride = width;
    norm.bias = form.bias;
    norm.activations = activations_.data();
    start(form.layer ? "layer_norm" : "rms_norm", norm);
    return {};
  }
  // W activations_, without a place for the result
  Linear linear_of(const PackedMatrix& w, int rows) const {
    Linear product;
    product.weights = static_cast<const Bf16*>(w.data.get());
    product.out = w.out;
    product.in = w.in;
    product.activations = activations_.data();
    product.rows = rows;
    product.partials = partials_.data();
    product.arrivals = arrivals_.data();
    return product;
  }
  // y (+)= W activations_
  void product(const PackedMatrix& w, int rows, float* y, bool accumulate, const NormedRow& norm = {}) {
    Linear product = linear_of(w, rows);
    product.norm = norm;
    product.y = y;
    product.y_stride = w.out;
    product.accumulate = accumulate;
    start("linear", product);
  }
  // What products with such a matrix need beside it: now, so that it stays where it is while they run.
  void reserve(int out, int in) {
    const LinearPlan plan = plan_of(out, in, kMostRows);
    room(activations_, activation_elements(kMostRows, in));
    room(activated_, activation_elements(kMostRows, in));
    room(partials_, plan.partials);
    const auto meeting = static_cast<std::size_t>(plan.meeting);
    if (meeting <= arrivals_.size()) return;
    const std::vector<simt::u32> none(meeting);
    upload(none.data(), meeting * sizeof(simt::u32), room(arrivals_, meeting));
  }
  void elementwise(ElementwiseOf operation, const float* x, float factor, int rows, int width, float* y) {
    if (rows > 0) start("elementwise", Elementwise{operation, y, x, factor, rows, width});
  }
  // Of so many launches one after the other, the last one's `out` fetched.
  template <typename Arguments, typename T>
  double seconds(int times, const char* kernel, const Arguments& arguments, const Buffer<T>& out) {
    T one;
    download(out.data(), sizeof one, &one);  // what was before is done
    const std::int64_t begun = wall_now_ns();
    for (int i = 0; i < times; ++i) start(kernel, arguments);
    download(out.data(), sizeof one, &one);
    return 1e-9 * static_cast<double>(wall_now_ns() - begun);
  }
  template <typename Arguments>
  void start(const char* kernel, const Arguments& arguments) {
    if (kernels_ != CudaKernels::kLaunches) {
      if (std::optional<Task> task = task_of(arguments)) {
        waiting_.push_back(*task);
        return;
      }
      submit();
    }
    if (recording_) recording_->nodes.push_back(describe(arguments));
    if (gpu_) gpu_->started(kernel);
    if (recording_ && !gpu_)
      launches_->in_order.push_back([arguments, stream = stream_] { launch(arguments, stream); });
    else launch(arguments, stream_);
  }

  // Persistent kernels.

  static constexpr int kSimulatedBlocks = 3;

  void set_kernels(CudaKernels kernels) {
    kernels_ = kernels;
    if (kernels_ == CudaKernels::kLaunches) return;
    const PersistentLimits limits =
        gpu_ ? persistent_limits(gpu_->ordinal()) : PersistentLimits{kSimulatedBlocks, 1, true};
    if (kernels_ == CudaKernels::kAuto && (!limits.cooperative || limits.resident < 1)) {
      kernels_ = CudaKernels::kLaunches;
      return;
    }
    persistent_blocks_ = persistent_blocks(limits, device_);
    const simt::u64 none = 0;
    upload(&none, sizeof none, room(arrived_, 1));
  }
  void start_one(const GraphNode& node, const Task& task) {
    if (recording_) recording_->nodes.push_back(node);
    if (gpu_) gpu_->started(node.kernel.data());
    if (recording_ && !gpu_)
      launches_->in_order.push_back([task, stream = stream_] { launch(task, stream); });
    else launch(task, stream_);
  }
  void start_together(const std::vector<Task>& tasks) {
    const TaskTable table = make_table(fuse(tasks));
    std::vector<std::byte> bytes(table.bytes());
    table.write(bytes.data());
    if (recording_) {  // a table of its own, that stays as it is
      const std::shared_ptr<void> there = gpu_ ? gpu_->allocate(bytes.size()) : allocate(bytes.size());
      if (gpu_) gpu_->upload_beside(bytes.data(), bytes.size(), there.get());
      else std::memcpy(there.get(), bytes.data(), bytes.size());
      recording_->kept.push_back(there);
      const Persistent launched = table.arguments(there.get(), arrived_.data());
      recording_->nodes.push_back(describe(launched, persistent_blocks_));
      if (!gpu_) {
        launches_->in_order.push_back(
            [launched, blocks = persistent_blocks_, stream = stream_] { launch(launched, blocks, stream); });
        return;
      }
      gpu_->started("persistent");
      return launch(launched, persistent_blocks_, stream_);
    }
    // In the order of the stream, so that the table before it has been read.
    std::byte* there = room(table_, bytes.size());
    if (gpu_) gpu_->upload(bytes.data(), bytes.size(), there);
    else std::memcpy(there, bytes.data(), bytes.size());
    if (gpu_) gpu_->started("persistent");
    launch(table.arguments(there, arrived_.data()), persistent_blocks_, stream_);
  }

  std::shared_ptr<simt::Machine> machine_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<CublasLt> library_;
  // As many as make unpacking cheap (it moves a matrix three times, a product of ours reads it once for
  // kMostRows), and no more than leave activations small beside weights.
  PromptRows prompt_rows_;
  Stream stream_;
  std::string name_, class_, device_;
  cpu::ThreadPool pool_;                     // reads weights
  Buffer<simt::u16> activations_;            // of a linear
  Buffer<simt::u16> activated_;              // of the one behind a gate
  Buffer<float> partials_;                   // of its slices
  Buffer<simt::u32> arrivals_;               // zeros between products
  Buffer<simt::u16> plain_weights_, plain_;  // of the last product of a prompt
  Buffer<float> sums_, mixed_;               // of the splits of an attention
  std::vector<std::int32_t> moves_;          // from, then to
  Buffer<std::int32_t> staged_moves_;
  std::shared_ptr<Graph> recording_;    // the graph that operations go to, if any
  std::shared_ptr<Launches> launches_;  // of it
  std::uint64_t conditional_ = 0;       // of its loop
  CudaKernels kernels_ = CudaKernels::kLaunches;
  int persistent_blocks_ = 0;
  std::vector<Task> waiting_;  // in order
  Buffer<std::byte> table_;    // of the last persistent kernel
  Buffer<simt::u64> arrived_;  // at its barrier
};

}  // namespace
}  // namespace cuda

std::string gpu_absent() { return cuda::gpu_absent(); }

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return make_cuda_backend(options, CudaKernels::kLaunches);
}

std::shared_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options, CudaKernels kernels) {
  return std::make_shared<cuda::CudaBackend>(options, kernels);
}

CudaKernels parse_cuda_kernels(const std::string& name) {
  if (name == "launches") return CudaKernels::kLaunches;
  if (name == "persistent") return CudaKernels::kPersistent;
  if (name == "auto") return CudaKernels::kAuto;
  throw Error({.what = "--kernels", .got = name, .expected = "launches, persistent or auto", .advice = ""});
}

}  // namespace speclab
