#include <fmt/format.h>

#include <vector>

#include "core/measure/environment.h"
#include "core/measure/stats.h"
#include "core/decoding/loop/decode_loop.h"
#include "experiments/bench/bench.h"
#include "experiments/run/forward_times.h"

namespace speclab::bench {
namespace {

constexpr int kMostRows = 32;

/// Work of a forward of n rows after `context` tokens. All rows get logits.
Work work_of(const Model& model, int n, int context) {
  const std::int64_t rows = n;
  return model.work(rows, rows, context, rows * context + rows * (rows + 1) / 2);
}

void count(benchmark::State& state, const Setting& setting, const Work& work) {
  count_work(state, setting, work.weight_bytes + work.kv_bytes, work.flops);
}

void add_rows(const Setting& setting) {
  const Model& model = *setting.models->target();
  for (const int context : {128, 512, 4096}) {
    if (context + kMostRows > model.config().context) continue;
    auto timer = std::make_shared<std::unique_ptr<ForwardTimer>>();
    for (const int rows : {1, 2, 4, 5, 8, 16, 32}) {
      if (context > 512 && rows != 1 && rows != 16) continue;
      add(fmt::format("forward/context:{}/rows:{}", context, rows), [=, &model](benchmark::State& state) {
        if (!*timer) *timer = std::make_unique<ForwardTimer>(model, context, kMostRows);
        std::vector<double> device_us;
        for (auto _ : state) {
          if (const auto ns = (*timer)->time(rows).device_ns) device_us.push_back(1e-3 * *ns);
        }
        // device_us leaves out the download of the rows; the benchmark's own time includes it.
        if (!device_us.empty()) state.counters["device_us"] = stats::median(device_us);
        count(state, setting, work_of(model, rows, context));
      });
    }
  }
}

/// Times a step of greedy decoding with the decode loop.
void add_greedy(const Setting& setting) {
  constexpr int kSteps = 16;
  for (const int context : {128, 512}) {
    auto loop = std::make_shared<std::unique_ptr<DecodeLoop>>();
    add(
        fmt::format("greedy_step/context:{}", context),
        [=](benchmark::State& state) {
          const auto& model = setting.models->target();
          LoopOptions options;
          options.capacity = context + kSteps + 1;
          options.hash_rows = options.details = false;
          if (!*loop) {
            *loop =
                std::make_unique<DecodeLoop>(model, nullptr, StrategyChoice(baseline_strategy()), options);
          }
          const std::vector<Token> prompt = timed_context(*model, context);
          Request request;
          request.prompt = prompt;
          request.options.max_tokens = kSteps + 1;  // the first token comes from prefill
          request.options.ignore_eos = true;
          for (auto _ : state) {
            const GenerationRecord record = (*loop)->run(request);
            state.SetIterationTime(1e-9 * static_cast<double>(record.decode_ns) / kSteps);
          }
          count(state, setting, work_of(*model, 1, context + kSteps / 2));
        },
        Clock::kManual)
        ->Iterations(2);
  }
}

void add_prefill(const Setting& setting) {
  for (const int tokens : {128, 512}) {
    auto session = std::make_shared<std::unique_ptr<Session>>();
    add(fmt::format("prefill/tokens:{}", tokens), [=](benchmark::State& state) {
      const Model& model = *setting.models->target();
      if (!*session) *session = model.open(tokens);
      const std::vector<Token> prompt = timed_context(model, tokens);
      std::vector<float> logits(static_cast<std::size_t>(model.config().head_rows()));
      for (auto _ : state) {
        (*session)->rewind(0);
        (*session)->prefill(prompt, logits.data());
      }
      const std::int64_t n = tokens;
      count(state, setting, model.work(n, 1, 0, n * (n + 1) / 2));
    })->Iterations(1);
  }
}

/// Times forwards of the draft as they occur in decoding: after a verification by the target, which has
/// evicted the draft's weights from the caches. The first forward of a step feeds two tokens (the last
/// accepted one and the new one), later forwards feed one. "hot" repeats a later forward without a target
/// forward in between, for profiles.
void add_draft(const Setting& setting) {
  if (!setting.has_draft) return;
  constexpr int kContext = 512;
  struct Timers {
    ForwardTimer target, draft;
  };
  auto timers = std::make_shared<std::unique_ptr<Timers>>();
  for (const std::string which : {"first", "later", "hot"}) {
    add(
        "draft_step/" + which,
        [=](benchmark::State& state) {
          const Model& draft = *setting.models->draft("draft");
          if (!*timers) {
            timers->reset(new Timers{ForwardTimer(*setting.models->target(), kContext, 5),
                                     ForwardTimer(draft, kContext, 5)});
          }
          for (auto _ : state) {
            double ns = 0;
            if (which != "hot") (*timers)->target.time(5), ns = (*timers)->draft.time(2).host_ns;
            if (which != "first") ns = (*timers)->draft.time(1).host_ns;
            state.SetIterationTime(ns * 1e-9);
          }
          count(state, setting, work_of(draft, which == "first" ? 2 : 1, kContext));
        },
        Clock::kManual);
  }
  // Two lower bounds for a "later" forward. Each times reads of a buffer with as many bytes as the forward
  // reads, with as many threads. "draft_bytes_second" first reads as many other bytes as a target forward,
  // then the buffer twice, and times the second read of the buffer. "draft_bytes" reads it again and again.
  const Work work = work_of(*setting.models->draft("draft"), 1, kContext),
             target = work_of(*setting.models->target(), 5, kContext);
  const auto bytes = static_cast<std::size_t>(work.weight_bytes + work.kv_bytes),
             others = static_cast<std::size_t>(target.weight_bytes + target.kv_bytes);
  const int threads = setting.models->backend().threads();
  const auto add_reading = [&](const std::string& name, const std::function<double()>& bandwidth) {
    add(
        "machine/" + name,
        [=](benchmark::State& state) {
          for (auto _ : state) state.SetIterationTime(static_cast<double>(bytes) / bandwidth());
          count_work(state, setting, static_cast<double>(bytes), 0);
        },
        Clock::kManual)
        ->Iterations(1);
  };
  add_reading("draft_bytes_second", [=] { return measure_second_read_bandwidth(threads, bytes, others); });
  add_reading("draft_bytes", [=] { return measure_read_bandwidth(threads, bytes); });
}

}  // namespace

void add_forwards(const Setting& setting) {
  add_rows(setting);
  add_greedy(setting);
  add_prefill(setting);
  add_draft(setting);
}

}  // namespace speclab::bench
