#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/decoding/loop/decode_loop.h"
#include "core/decoding/loop/divided_tree.h"
#include "core/decoding/rows/processors.h"
#include "core/decoding/loop/stop_strings.h"

namespace speclab {

/// One sequence in the decode loop: its session, the text so far, and the buffers of the step in progress,
/// kept between steps and prompts so that a step does not allocate. Internal to decode_loop.cpp and
/// decode_record.cpp.
struct DecodeLoop::Slot {
  static constexpr SamplingParams kRaw{.temperature = 1, .top_k = 0, .top_p = 1};

  std::unique_ptr<Session> session;
  std::vector<Session*> draft_sessions;  // owned by the strategy
  const Request* request = nullptr;
  const AcceptanceRule* rule = nullptr;
  bool lossy = false;
  std::unique_ptr<LogitsProcessors> processors;
  Sequence sequence;
  StopStrings stops;
  GenerationRecord out;
  bool running = false;

  // Of the step in progress:
  Draft draft;
  Acceptance acceptance, again;
  std::int64_t decided_from = 0;      // position of the pending token
  std::vector<float> logits;          // [nodes that want a row, vocab]
  std::vector<float> maxima;          // of Feed, where the strategy reads rows; else none
  std::vector<std::int32_t> row_of;   // [nodes], into logits; -1: none
  std::vector<Token> fed;             // [rows fed]
  std::vector<std::int32_t> parents;  // [rows fed]
  std::vector<std::int32_t> node_at;  // [nodes], the fed row that is the node
  std::vector<std::int32_t> rows;     // those of nodes that want logits, ascending
  std::vector<int> keep;
  DividedTree divided;                        // over several devices
  std::vector<Token> refeed;                  // accepted, but not in the cache of every device
  std::vector<Distribution> p, raw;           // [node 0 and candidates], filled when the walk reaches them
  std::vector<std::vector<float>> processed;  // the same, rows after the processors
  std::vector<char> ready;
  std::vector<int> path;
  std::vector<Token> prefix;
  std::vector<double> law, law_of_target;
  StepRecord
      step;  // the record of it, whose lists keep their memory; out.steps gets copies, outside the clock
  int emitted = 0;
  Work draft_before;               // this step
  Work target_begun, draft_begun;  // decoding, i.e. what prefill left

  StepRows step_rows() const { return {logits.data(), row_of, vocab(), maxima}; }
  int vocab() const { return session->model().config().vocab; }
  std::span<const float> raw_logits(int node) const {
    return {logits.data() + static_cast<std::size_t>(row_of[node]) * vocab(),
            static_cast<std::size_t>(vocab())};
  }
  // The row as it is sampled from: processors see the text up to and including the node.
  std::span<const float> row(int node) const {
    return processors ? std::span<const float>(processed[node]) : raw_logits(node);
  }

  Work draft_work() const {
    Work sum;
    for (const Session* session : draft_sessions) sum += session->work();
    return sum;
  }

  void expect_rows() {
    const TokenTree& tree = draft.tree;
    row_of.resize(static_cast<std::size_t>(tree.size()));
    std::int32_t wanted = 0;
    for (int node = 0; node < tree.size(); ++node) row_of[node] = tree.wants_row(node) ? wanted++ : -1;
    logits.resize(std::max(logits.size(), static_cast<std::size_t>(wanted) * vocab()));
    const int nodes = 1 + tree.drafted();
    if (static_cast<int>(p.size()) < nodes) {
      p.resize(nodes);
      raw.resize(nodes);
      processed.resize(nodes);
    }
    ready.assign(nodes, 0);
  }

  TargetRow target_row(int node) {
    const bool wants_raw = lossy && sequence.sampling.temperature <= 0;  // see criterion_row()
    if (!ready[node]) {
      if (processors) {
        draft.tree.path_to(node, path);
        prefix.clear();
        for (const int on_path : path) prefix.push_back(draft.tree.token(on_path));
        processed[node].resize(vocab());
        processors->apply(raw_logits(node), {}, sequence.tokens, prefix, processed[node]);
      }
      p[node].assign_logits(row(node), sequence.sampling, {}, vocab());
      if (wants_raw) raw[node].assign_logits(row(node), kRaw, {}, vocab());
      ready[node] = 1;
    }
    return {&p[node], wants_raw ? &raw[node] : &p[node]};
  }

  void walk(Acceptance& result) {  // one captured pointer: the function object needs no allocation
    accept(
        *rule, request->options.rule_options, draft, [this](int node) { return target_row(node); },
        sequence.coins, decided_from, result);
  }

  // Takes one token into the text. False: the text ends with it.
  bool take(Token token, int capacity, const std::function<void(Token, std::string&)>& bytes) {
    const GenerationOptions& options = request->options;
    sequence.tokens.push_back(token);
    out.tokens.push_back(token);
    running = false;
    const bool stopped = stops.active() && stops.push(token, bytes);
    if (!options.ignore_eos &&
        std::find(request->eos.begin(), request->eos.end(), token) != request->eos.end())
      out.finish = Finish::eos;
    else if (stopped) out.finish = Finish::stop;
    else if (static_cast<int>(out.tokens.size()) >= options.max_tokens) out.finish = Finish::length;
    else if (sequence.position() >= capacity) out.finish = Finish::context;  // it could not be fed
    else running = true;
    return running;
  }
};

}  // namespace speclab
