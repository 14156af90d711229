#include <fmt/format.h>

#include <array>
#include <numeric>
#include <vector>

#include "core/measure/recorder.h"
#include "core/decoding/rows/distribution.h"
#include "experiments/bench/bench.h"

namespace speclab::bench {
namespace {

constexpr std::array kRows = {1, 2, 4, 5, 8, 16, 32};

/// A matrix of small random weights in the backend's layout.
PackedMatrix random_matrix(Backend& backend, int out, int in) {
  return backend.pack(out, in, [in](int begin, int end, Bf16* rows) {
    const auto size = static_cast<std::size_t>(end - begin) * static_cast<std::size_t>(in);
    for (std::size_t i = 0; i < size; ++i) {
      const auto hash = static_cast<std::uint32_t>((i + static_cast<std::size_t>(begin)) * 2654435761u);
      rows[i] = float_to_bf16(static_cast<float>(hash >> 16) * 0x1p-22f - 0x1p-7f);
    }
  });
}

struct Shape {
  std::string name;
  int out, in;
};

/// The matrices of a layer, and the output head last.
std::vector<Shape> shapes_of(const ModelConfig& c) {
  return {{"qkv", (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden},
          {"attention_out", c.hidden, c.query_width()},
          {c.gated ? "gate_up" : "up", (c.gated ? 2 : 1) * c.ffn, c.hidden},
          {"down", c.hidden, c.ffn},
          {"head", c.head_rows(), c.hidden}};
}

double flops_of(const PackedMatrix& w, int rows) { return 2.0 * w.out * w.in * rows; }

/// Times the matrix products of a forward without anything else: multiplies by every matrix once, in order.
/// Together the matrices do not fit into a cache, so they come from memory.
void add_all_matrices(const Setting& setting) {
  auto matrices = std::make_shared<std::vector<PackedMatrix>>();
  const auto prepare = [setting, matrices] {
    if (!matrices->empty()) return;
    const ModelConfig& config = setting.models->target()->config();
    const std::vector<Shape> shapes = shapes_of(config);
    for (int layer = 0; layer < config.layers; ++layer) {
      for (std::size_t i = 0; i + 1 < shapes.size(); ++i)
        matrices->push_back(random_matrix(setting.models->backend(), shapes[i].out, shapes[i].in));
    }
    matrices->push_back(random_matrix(setting.models->backend(), shapes.back().out, shapes.back().in));
  };
  for (const int rows : kRows) {
    add(fmt::format("matrices/all/rows:{}", rows), [=](benchmark::State& state) {
      prepare();
      double bytes = 0, flops = 0;
      std::size_t widest_in = 0, widest_out = 0;
      for (const PackedMatrix& w : *matrices) {
        bytes += static_cast<double>(w.bytes), flops += flops_of(w, rows);
        widest_in = std::max(widest_in, static_cast<std::size_t>(w.in));
        widest_out = std::max(widest_out, static_cast<std::size_t>(w.out));
      }
      std::vector<float> x(widest_in * rows, .25f), y(widest_out * rows);
      for (auto _ : state) {
        for (const PackedMatrix& w : *matrices)
          setting.models->backend().linear(w, x.data(), rows, y.data(), false);
      }
      count_work(state, setting, bytes, flops);
    });
  }
}

/// Multiplies by one matrix again and again. If the matrix fits into a cache, it is read from there.
void add_single_matrices(const Setting& setting) {
  for (const Shape& shape : shapes_of(setting.models->target()->config())) {
    auto matrix = std::make_shared<PackedMatrix>();
    for (const int rows : {1, 2, 3, 4, 5, 6, 8, 16}) {
      add(fmt::format("matrices/{}_{}x{}/rows:{}", shape.name, shape.out, shape.in, rows),
          [=](benchmark::State& state) {
            if (!matrix->data) *matrix = random_matrix(setting.models->backend(), shape.out, shape.in);
            std::vector<float> x(static_cast<std::size_t>(shape.in) * rows, .25f);
            std::vector<float> y(static_cast<std::size_t>(shape.out) * rows);
            for (auto _ : state) setting.models->backend().linear(*matrix, x.data(), rows, y.data(), false);
            count_work(state, setting, static_cast<double>(matrix->bytes), flops_of(*matrix, rows));
          });
    }
  }
}

/// Times the output head, with and without noting block maxima (the largest of each kMaximumOf logits).
void add_noting(const Setting& setting) {
  auto matrix = std::make_shared<PackedMatrix>();
  for (const int rows : {1, 8, 30, 62, 81}) {
    for (const bool noting : {false, true}) {
      add(fmt::format("matrices/head/noting:{:d}/rows:{}", noting, rows), [=](benchmark::State& state) {
        Backend& backend = setting.models->backend();
        const ModelConfig& c = setting.models->target()->config();
        if (!matrix->data) *matrix = random_matrix(backend, c.head_rows(), c.hidden);
        std::vector<float> x(static_cast<std::size_t>(c.hidden) * rows, .25f);
        std::vector<float> y(static_cast<std::size_t>(c.head_rows()) * rows);
        std::vector<float> maxima(static_cast<std::size_t>(maxima_of(c.head_rows())) * rows);
        for (auto _ : state) {
          if (!noting) {
            backend.linear(*matrix, x.data(), rows, y.data(), false);
          } else if (!backend.linear_noting(*matrix, x.data(), rows, y.data(), maxima.data())) {
            state.SkipWithError("this backend does not note maxima");
            break;
          }
        }
        count_work(state, setting, static_cast<double>(matrix->bytes), flops_of(*matrix, rows));
      });
    }
  }
}

/// Times the attention of all layers for the rows of a chain over a committed context.
void add_attention(const Setting& setting) {
  for (const int context : {128, 512, 4096}) {
    if (context + kRows.back() > setting.models->target()->config().context) continue;
    auto kv = std::make_shared<KvStore>();
    for (const int rows : {1, 4, 16}) {
      add(fmt::format("attention/context:{}/rows:{}", context, rows), [=](benchmark::State& state) {
        const ModelConfig& c = setting.models->target()->config();
        Backend& backend = setting.models->backend();
        if (!kv->data) *kv = backend.allocate_kv(c.layers, c.kv_heads, c.head_dim, context + kRows.back());
        std::vector<float> qkv(static_cast<std::size_t>(rows) * (c.heads + 2 * c.kv_heads) * c.head_dim, .5f);
        std::vector<float> out(static_cast<std::size_t>(rows) * c.query_width());
        std::vector<std::int32_t> slots(rows), paths, path_begin{0};
        std::iota(slots.begin(), slots.end(), context);
        for (int i = 0; i < rows; ++i) {
          paths.insert(paths.end(), slots.begin(), slots.begin() + i + 1);
          path_begin.push_back(static_cast<std::int32_t>(paths.size()));
        }
        const RowsInFlight visible{rows,         context,           slots.data(),
                                   slots.data(), path_begin.data(), paths.data()};
        for (auto _ : state) {
          for (int layer = 0; layer < c.layers; ++layer)
            backend.attention(qkv.data(), c.heads, *kv, layer, visible, out.data());
        }
        const double keys = static_cast<double>(rows) * context + rows * (rows + 1) / 2.0;
        count_work(state, setting, static_cast<double>(kv->bytes_per_position) * (context + rows),
                   4.0 * keys * c.layers * c.query_width());
      });
    }
  }
}

/// Times the small operations: norm and activation of a forward, standardising and hashing a logits row.
void add_small_operations(const Setting& setting) {
  for (const int rows : {1, 4, 16}) {
    const auto values = [rows](int width) {
      return std::vector<float>(static_cast<std::size_t>(rows) * width, .5f);
    };
    add(fmt::format("rms_norm/rows:{}", rows), [=](benchmark::State& state) {
      const ModelConfig& c = setting.models->target()->config();
      std::vector<float> x = values(c.hidden), out = x, weight(static_cast<std::size_t>(c.hidden), 1.f);
      for (auto _ : state)
        setting.models->backend().rms_norm(x.data(), weight.data(), c.norm_eps, rows, c.hidden, out.data());
      count_work(state, setting, 0, 4.0 * rows * c.hidden);
    });
    add(fmt::format("silu_multiply/rows:{}", rows), [=](benchmark::State& state) {
      const ModelConfig& c = setting.models->target()->config();
      std::vector<float> x = values(2 * c.ffn), out = values(c.ffn);
      for (auto _ : state) setting.models->backend().silu_multiply(x.data(), rows, c.ffn, out.data());
      count_work(state, setting, 0, 5.0 * rows * c.ffn);
    });
  }
  for (const int temperature : {0, 1}) {
    add(fmt::format("standardise/temperature:{}", temperature), [=](benchmark::State& state) {
      const int vocab = setting.models->target()->config().vocab;
      std::vector<float> logits(static_cast<std::size_t>(vocab));
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * .01f;
      SamplingParams params;
      params.temperature = temperature;
      Distribution row;
      for (auto _ : state) row.assign_logits(logits, params, {}, vocab);
      count_work(state, setting, 4.0 * vocab, 0);
    });
  }
  add("hash_row", [=](benchmark::State& state) {
    std::vector<float> logits(static_cast<std::size_t>(setting.models->target()->config().vocab), .5f);
    for (auto _ : state) benchmark::DoNotOptimize(hash_row(logits.data(), logits.size()));
    count_work(state, setting, 4.0 * static_cast<double>(logits.size()), 0);
  });
}

}  // namespace

void add_kernels(const Setting& setting) {
  add_all_matrices(setting);
  add_single_matrices(setting);
  if (setting.models->backend().host_memory()) add_noting(setting);
  add_attention(setting);
  add_small_operations(setting);
}

}  // namespace speclab::bench
