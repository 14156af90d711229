#include <algorithm>

#include "core/base/error.h"
#include "core/model/tokenizer_spec.h"

namespace speclab {
namespace {

/// A pre-tokeniser by its GGUF name, with the options of the model that goes with it.
struct Named {
  std::string_view name;
  std::vector<SplitStep> steps;
  bool ignore_merges, nfc;
};

const std::vector<Named>& known_pre_tokenizers() {
  using enum SplitStep;
  static const std::vector<Named> known = {
      {"smollm", {kDigits, kGpt2}, false, false},
      {"gpt-2", {kGpt2}, false, false},
      {"default", {kGpt2}, false, false},
      {"llama-bpe", {kLlama3}, true, false},
      {"llama3", {kLlama3}, true, false},
      {"llama-v3", {kLlama3}, true, false},
      {"qwen2", {kQwen2}, false, true},
      {"deepseek-llm",
       {kLineEnds, kDeepSeekLetters, kDeepSeekSymbols, kTrailingSpaces, kEastAsian, kDigits},
       false,
       false},
      {"deepseek-coder", {kLineEnds, kSpaceLetters, kSpacePunctuation, kEastAsian, kDigits}, false, false},
      {"deepseek-v3", {kThreeNumbers, kHanAndKana, kDeepSeek3}, false, false},
  };
  return known;
}

std::pair<std::string, std::string> parse_merge(const std::string& merge, const std::string& at) {
  const std::size_t space = merge.find(' ');
  const bool good = space != std::string::npos && space > 0 && space + 1 < merge.size() &&
                    merge.find(' ', space + 1) == std::string::npos;
  if (!good) {
    throw Error({at, fmt::format("\"{}\"", merge), "two tokens with one space between them",
                 "The file is broken; fetch or convert it again."});
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

}  // namespace

Tokenizer Tokenizer::from_parts(Parts parts) {
  if (parts.model == "llama" || parts.model == "t5") return build(sentencepiece_parts_spec(std::move(parts)));
  TokenizerSpec spec;
  spec.file = parts.file;
  spec.tokens_at = parts.file + ": tokenizer.ggml.tokens";
  spec.merges_at = parts.file + ": tokenizer.ggml.merges";
  spec.added_at = parts.file + ": tokenizer.ggml.token_type";
  if (parts.model != "gpt2") {
    throw Error({parts.file + ": tokenizer.ggml.model", fmt::format("\"{}\"", parts.model),
                 "\"gpt2\" (byte-level BPE), \"llama\" or \"t5\" (SentencePiece)",
                 "Use a model with one of these tokenizers."});
  }
  const auto& known = known_pre_tokenizers();
  const auto named = std::ranges::find(known, parts.pre_tokenizer, &Named::name);
  if (named == known.end()) {
    std::string names;
    for (const Named& entry : known) names += (names.empty() ? "" : ", ") + std::string(entry.name);
    throw Error({parts.file + ": tokenizer.ggml.pre", fmt::format("\"{}\"", parts.pre_tokenizer),
                 "one of " + names, "Another splitter would give other ids, so none is guessed."});
  }
  spec.steps = named->steps;
  spec.ignore_merges = named->ignore_merges;
  spec.nfc = named->nfc;
  if (!parts.token_types.empty() && parts.token_types.size() != parts.tokens.size()) {
    throw Error({spec.added_at, fmt::format("{} types", parts.token_types.size()),
                 fmt::format("one for each of {} tokens", parts.tokens.size()),
                 "The file contradicts itself; fetch or convert it again."});
  }
  for (std::size_t i = 0; i < parts.token_types.size(); ++i) {
    constexpr std::int32_t kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;
    const std::int32_t type = parts.token_types[i];
    if (type < 1 || type > kByte) {
      throw Error({fmt::format("{}/{}", spec.added_at, i), fmt::format("{}", type), "1..6",
                   "The file is broken; fetch or convert it again."});
    }
    if (type == kUnknown || type == kControl || type == kUserDefined) {
      spec.added.push_back({static_cast<Token>(i), type != kUserDefined, false});
    }
  }
  spec.merges.reserve(parts.merges.size());
  for (std::size_t i = 0; i < parts.merges.size(); ++i) {
    spec.merges.push_back(parse_merge(parts.merges[i], fmt::format("{}/{}", spec.merges_at, i)));
  }
  spec.tokens = std::move(parts.tokens);
  spec.ids = std::move(parts.ids);
  spec.add_bos = parts.add_bos;
  return build(std::move(spec));
}

}  // namespace speclab
