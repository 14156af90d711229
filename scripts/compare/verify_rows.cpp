// Times llama.cpp through its public C API. scripts/compare/compare_llama_cpp.py compiles this file against
// the libllama of a checkout; the project's own build does not. The program does what `speclab bench --rows`
// does with SpecLab's engine, in the same order. For each context it first decodes texts (prefill with the
// last row's logits, then greedy steps). Then it times forwards of n rows of one sequence with logits for
// every row, and removes the rows of each forward from the cache before the next one.
//
//   verify_rows MODEL THREADS FLASH_ATTENTION(0|1) CONTEXTS ROWS STEPS TEXTS REPEATS
//
// CONTEXTS and ROWS are lists such as 128,512; the other numbers are single ones.
//
// Prints one JSON object to stdout. Everything but threads, flash attention and the context's size is
// llama.cpp's default (cache f16, batch 2048, micro-batch 512).
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "verify_rows: %s\n", what);
  std::exit(1);
}

std::vector<int> numbers(const char* text) {
  std::vector<int> list;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) list.push_back(std::atoi(part.c_str()));
  return list;
}

class Peer {
 public:
  Peer(const char* path, int threads, bool flash_attention, int capacity) {
    model_ = llama_model_load_from_file(path, llama_model_default_params());
    if (model_ == nullptr) fail("the model cannot be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(capacity);
    params.n_threads = params.n_threads_batch = threads;
#ifdef LLAMA_HAS_MEMORY_API  // since the middle of 2025
    params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
#else
    params.flash_attn = flash_attention;
#endif
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) fail("the context cannot be created");
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_ = llama_batch_init(capacity, 0, 1);
  }

  int vocab() const { return vocab_; }
  double bytes() const { return static_cast<double>(llama_model_size(model_)); }
  int threads() const {
    if (llama_n_threads(context_) != llama_n_threads_batch(context_))
      fail("steps and batches use different numbers of threads");
    return llama_n_threads(context_);
  }

  /// Feeds tokens at positions from, from + 1, ... of one sequence. Computes the logits of all rows if `all`
  /// is true, otherwise only those of the last row.
  void forward(const llama_token* tokens, int count, int from, bool all) {
    batch_.n_tokens = count;
    for (int i = 0; i < count; ++i) {
      batch_.token[i] = tokens[i];
      batch_.pos[i] = from + i;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = all || i == count - 1;
    }
    if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
    logits_ = llama_get_logits(context_);  // waits for the result
  }
  llama_token best(int row) const {
    const float* logits = logits_ + static_cast<std::size_t>(row) * static_cast<std::size_t>(vocab_);
    return static_cast<llama_token>(std::max_element(logits, logits + vocab_) - logits);
  }
  void keep(int length) {
#ifdef LLAMA_HAS_MEMORY_API
    const bool removed = llama_memory_seq_rm(llama_get_memory(context_), 0, length, -1);
#else
    const bool removed = llama_kv_cache_seq_rm(context_, 0, length, -1);
#endif
    if (!removed) fail("rows cannot be removed from the cache");
  }

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  llama_batch batch_{};
  const float* logits_ = nullptr;
  int vocab_ = 0;
};

template <class Number>
std::string list(const std::vector<Number>& values) {
  std::string text = "[";
  for (const Number value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) fail("usage: verify_rows MODEL THREADS FLASH_ATTENTION CONTEXTS ROWS STEPS TEXTS REPEATS");
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  const std::vector<int> contexts = numbers(argv[4]), sizes = numbers(argv[5]);
  const int steps = std::atoi(argv[6]), texts = std::atoi(argv[7]), repeats = std::atoi(argv[8]);
  const int most = *std::max_element(sizes.begin(), sizes.end());
  const int longest = *std::max_element(contexts.begin(), contexts.end());
  Peer peer(argv[1], std::atoi(argv[2]), std::atoi(argv[3]) != 0, longest + std::max(most, steps + 1));
  std::vector<llama_token> tokens(static_cast<std::size_t>(longest));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<llama_token>((i * 7919 + 13) % static_cast<std::size_t>(peer.vocab()));
  std::string out;
  for (const int context : contexts) {
    if (context < most) fail("a context is shorter than the largest number of rows");
    std::vector<double> prefill, step;
    std::vector<llama_token> text;
    const double cpu_begin = now(CLOCK_PROCESS_CPUTIME_ID), wall_begin = now(CLOCK_MONOTONIC);
    for (int i = -1; i < texts; ++i) {  // the first one warms up: maps the weights, touches the buffers
      peer.keep(0);
      double begin = now(CLOCK_MONOTONIC);
      peer.forward(tokens.data(), context, 0, false);
      text = {peer.best(0)};
      if (i >= 0) prefill.push_back(now(CLOCK_MONOTONIC) - begin);
      begin = now(CLOCK_MONOTONIC);
      for (int k = 0; k < steps; ++k) {
        peer.forward(&text.back(), 1, context + k, true);
        text.push_back(peer.best(0));
      }
      if (i >= 0) step.push_back((now(CLOCK_MONOTONIC) - begin) / steps);
    }
    std::vector<std::vector<double>> rows(sizes.size());
    for (int repeat = -1; repeat < repeats; ++repeat) {  // the sizes take turns; the first round warms up
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        peer.keep(context);
        const double begin = now(CLOCK_MONOTONIC);
        peer.forward(tokens.data(), sizes[k], context, true);
        if (repeat >= 0) rows[k].push_back(now(CLOCK_MONOTONIC) - begin);
      }
    }
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin, wall = now(CLOCK_MONOTONIC) - wall_begin;
    // One more forward, over the text itself, counts the rows whose best token is the next token of the text.
    // This should hold for every row. compare_llama_cpp.py refuses the result if it holds for fewer than
    // half of the rows.
    const int drafted = std::min(most, steps);
    peer.keep(context);
    peer.forward(text.data(), drafted, context, true);
    int agreed = 0;
    for (int i = 0; i < drafted; ++i) agreed += peer.best(i) == text[static_cast<std::size_t>(i) + 1];
    out += std::string(out.empty() ? "" : ", ") + "{\"context\": " + std::to_string(context) +
           ", \"prefill_ns\": " + list(prefill) + ", \"step_ns\": " + list(step) + ", \"rows_ns\": {";
    for (std::size_t k = 0; k < sizes.size(); ++k)
      out += std::string(k > 0 ? ", " : "") + "\"" + std::to_string(sizes[k]) + "\": " + list(rows[k]);
    out += "}, \"tokens\": " + list(text) + ", \"verified\": " + std::to_string(agreed) +
           ", \"drafted\": " + std::to_string(drafted) + ", \"cpu_per_wall\": " + std::to_string(cpu / wall) +
           "}";
  }
  std::printf("{\"threads\": %d, \"weight_bytes\": %.0f, \"system\": \"%s\", \"contexts\": [%s]}\n",
              peer.threads(), peer.bytes(), llama_print_system_info(), out.c_str());
}
