#include "core/model/toy/toy_checkpoint.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "core/model/toy/temporary_folder.h"

namespace speclab::toy {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The logit of a token that cannot follow. Its weight exp(logit / temperature) is 0 in float for every
/// temperature below 9 * 10^6.
constexpr float kImpossible = -1e9f;
constexpr int kContext = 1 << 20;  // positions; a model without layers has no limit of its own

void append(std::string& bytes, const std::vector<Bf16>& values) {
  static_assert(std::endian::native == std::endian::little);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Bf16));
}

/// A safetensors file: the length of the header, the header, the tensors.
std::string weights_of(const MarkovTable& table) {
  const int contexts = count_contexts(table.vocab, table.order);
  const auto n = static_cast<std::size_t>(contexts), vocab = static_cast<std::size_t>(table.vocab);
  SPECLAB_CHECK(table.logits.size() == n * vocab, "{} logits for {} contexts of {} symbols",
                table.logits.size(), n, vocab);
  const MarkovRows shape{table.vocab, table.order, std::vector<double>(n * vocab)};
  std::vector<Bf16> embedding(n * n), head(n * n, float_to_bf16(kImpossible));
  for (int context = 0; context < contexts; ++context) {
    const auto column = static_cast<std::size_t>(context);
    embedding[column * n + column] = float_to_bf16(1);
    for (int symbol = 0; symbol < table.vocab; ++symbol) {
      const auto row = static_cast<std::size_t>(shape.next(context, symbol));
      head[row * n + column] = float_to_bf16(table.logits[column * vocab + static_cast<std::size_t>(symbol)]);
    }
  }
  const std::size_t bytes = n * n * sizeof(Bf16);
  std::string header =
      json{{"lm_head.weight", {{"dtype", "BF16"}, {"shape", {n, n}}, {"data_offsets", {0, bytes}}}},
           {"model.embed_tokens.weight",
            {{"dtype", "BF16"}, {"shape", {n, n}}, {"data_offsets", {bytes, 2 * bytes}}}}}
          .dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  file.reserve(file.size() + 2 * bytes);
  append(file, head);
  append(file, embedding);
  return file;
}

}  // namespace

void write_toy(const fs::path& directory, const MarkovTable& table, const std::string& name) {
  const int contexts = count_contexts(table.vocab, table.order);
  make_folders(directory);
  write_json_file(directory / "config.json", {{"architectures", {"LlamaForCausalLM"}},
                                              {"model_type", "llama"},
                                              {"_name_or_path", name},
                                              {"hidden_size", contexts},
                                              {"num_hidden_layers", 0},
                                              {"vocab_size", contexts},
                                              {"max_position_embeddings", kContext},
                                              {"tie_word_embeddings", false},
                                              {"speclab_table", true}});
  write_file(directory / "model.safetensors", weights_of(table));
}

Checkpoint open_toy(const MarkovTable& table, const std::string& name) {
  // A checkpoint maps its files into memory. A mapping stays valid after its file is removed.
  const TemporaryFolder folder;
  write_toy(folder.path(), table, name);
  return Checkpoint::open(folder.path());
}

std::vector<Token> sample_text(const MarkovRows& rows, int tokens, std::uint64_t seed) {
  require_rows("rows of a Markov chain", rows);
  std::mt19937_64 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  int context = static_cast<int>(uniform() * rows.contexts());
  std::vector<Token> text;
  for (int i = 0; i < tokens; ++i) {
    const std::span<const double> row = rows.row(context);
    double rest = uniform();
    int symbol = 0;
    while (symbol + 1 < rows.vocab && (rest -= row[static_cast<std::size_t>(symbol)]) >= 0) ++symbol;
    context = rows.next(context, symbol);
    text.push_back(context);
  }
  return text;
}

}  // namespace speclab::toy
