#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/model/text/gguf_tokenizer_rules.h"
#include "core/model/text/tokenizer_spec.h"

namespace speclab {
namespace {

const GgufPreTokenizer& pre_tokenizer_of(const Tokenizer::Parts& parts, std::vector<std::string>& assumed) {
  const auto& known = gguf_pre_tokenizers();
  const std::string name = parts.pre_tokenizer.empty() ? "default" : parts.pre_tokenizer;
  const auto found = std::ranges::find(known, name, &GgufPreTokenizer::name);
  if (found == known.end()) {
    std::vector<std::string_view> names;
    for (const GgufPreTokenizer& entry : known) names.push_back(entry.name);
    throw Error({parts.file + ": tokenizer.ggml.pre", fmt::format("\"{}\"", name),
                 fmt::format("one of {}", fmt::join(names, ", ")),
                 "Another splitter would give other ids, so none is guessed."});
  }
  if (parts.pre_tokenizer.empty()) {
    assumed.push_back(
        "tokenizer.ggml.pre is missing: text is split by llama.cpp's default rule, which may differ from the "
        "model's");
  }
  return *found;
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

std::string shown(const Tokenizer::Parts& parts, Token token) {
  const bool inside = token >= 0 && static_cast<std::size_t>(token) < parts.tokens.size();
  return fmt::format("{} ({})", inside ? parts.tokens[static_cast<std::size_t>(token)] : "no token", token);
}

/// Gives the byte pieces their type, for SentencePiece. Its library requires all 256 byte pieces or none.
void find_byte_pieces(Tokenizer::Parts& parts) {
  std::map<std::string, std::size_t> names;
  for (int byte = 0; byte < 256; ++byte) names.emplace(fmt::format("<0x{:02X}>", byte), parts.tokens.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < parts.tokens.size(); ++i) {
    if (const auto name = names.find(parts.tokens[i]); name != names.end()) name->second = i, ++found;
  }
  if (found != names.size()) return;
  for (const auto& [name, at] : names) parts.token_types[at] = SentencePieceSpec::kByte;
}

/// Makes types for a file that has none. All tokens are text, except the byte pieces of SentencePiece and
/// tokens that llama.cpp takes for control tokens by their names. llama.cpp also lets names override types
/// that are in the file. This makes Gemma's "</s>", an HTML tag, a control token. Here the types in the file
/// win.
void invent_types(Tokenizer::Parts& parts) {
  parts.token_types.assign(parts.tokens.size(), SentencePieceSpec::kNormal);
  if (parts.model != "gpt2") find_byte_pieces(parts);
  std::string list;
  for (const ControlToken& control : control_tokens_by_name(parts.tokens, parts.stated_roles)) {
    parts.token_types[static_cast<std::size_t>(control.token)] = SentencePieceSpec::kControl;
    if (control.ends) parts.ids.end_of_generation.push_back(control.token);
    list += (list.empty() ? "" : ", ") + shown(parts, control.token);
  }
  parts.assumed.push_back(
      fmt::format("tokenizer.ggml.token_type is missing: control tokens are {}; all other tokens are text, "
                  "also where a chat template writes them",
                  list.empty() ? "assumed absent" : list + ", recognised by their names"));
}

/// Makes sure that each token has a known type.
void complete_types(Tokenizer::Parts& parts) {
  if (parts.token_types.empty()) return invent_types(parts);
  if (parts.token_types.size() != parts.tokens.size()) {
    throw Error({parts.file + ": tokenizer.ggml.token_type",
                 fmt::format("{} types", parts.token_types.size()),
                 fmt::format("one for each of {} tokens", parts.tokens.size()),
                 "The file contradicts itself; fetch or convert it again."});
  }
  std::size_t undefined = 0;
  for (std::int32_t& type : parts.token_types) {
    if (type >= SentencePieceSpec::kNormal && type <= SentencePieceSpec::kByte) continue;
    type = SentencePieceSpec::kNormal;
    ++undefined;
  }
  if (undefined == 0) return;
  parts.assumed.push_back(
      fmt::format("tokenizer.ggml.token_type is not 1..6 for {} of {} tokens: they are text", undefined,
                  parts.tokens.size()));
}

/// Fills in missing ids as llama.cpp does, if the vocabulary is large enough.
void complete_ids(Tokenizer::Parts& parts) {
  // For "gpt2" llama.cpp takes 11, the id of Falcon's end token, for every missing BOS and EOS. Here these
  // tokens stay missing.
  if (parts.model == "gpt2") return;
  const bool unigram = parts.model == "t5";
  const auto take = [&](const char* name, std::optional<Token>& id, Token absent) {
    if (id || static_cast<std::size_t>(absent) >= parts.tokens.size()) return;
    id = absent;
    parts.assumed.push_back(
        fmt::format("tokenizer.ggml.{}_token_id is missing: {}", name, shown(parts, absent)));
  };
  if (!unigram) take("bos", parts.ids.bos, 1);
  take("eos", parts.ids.eos, unigram ? 1 : 2);
  if (unigram) take("padding", parts.ids.pad, 0);
  if (parts.ids.unk) return;
  // The default is taken only if no token has the type "unknown".
  const auto typed = std::ranges::find(parts.token_types, std::int32_t{SentencePieceSpec::kUnknown});
  if (typed != parts.token_types.end()) {
    parts.ids.unk = static_cast<Token>(typed - parts.token_types.begin());
  } else {
    take("unknown", parts.ids.unk, unigram ? 2 : 0);
  }
}

void decide_bos(Tokenizer::Parts& parts, bool absent) {
  const bool stated = parts.add_bos.has_value(), wanted = parts.add_bos.value_or(absent);
  const std::optional<Token> bos = parts.ids.bos;
  parts.add_bos = wanted && bos;
  if (!wanted || (stated && bos)) return;
  parts.assumed.push_back(
      fmt::format("tokenizer.ggml.add_bos_token is {}: {}", stated ? "true" : "missing",
                  bos ? "prompts without a chat template begin with " + shown(parts, *bos)
                      : std::string("no token is named as BOS, so prompts begin without one")));
}

TokenizerSpec byte_level_spec(Tokenizer::Parts parts, const GgufPreTokenizer& pre_tokenizer) {
  TokenizerSpec spec;
  spec.file = parts.file;
  spec.tokens_at = parts.file + ": tokenizer.ggml.tokens";
  spec.merges_at = parts.file + ": tokenizer.ggml.merges";
  spec.added_at = parts.file + ": tokenizer.ggml.token_type";
  spec.steps = pre_tokenizer.steps;
  spec.ignore_merges = pre_tokenizer.ignore_merges;
  spec.nfc = pre_tokenizer.nfc;
  for (std::size_t i = 0; i < parts.token_types.size(); ++i) {
    const std::int32_t type = parts.token_types[i];
    const bool special = type == SentencePieceSpec::kUnknown || type == SentencePieceSpec::kControl;
    if (special || type == SentencePieceSpec::kUserDefined)
      spec.added.push_back({static_cast<Token>(i), special, false});
  }
  spec.merges.reserve(parts.merges.size());
  for (std::size_t i = 0; i < parts.merges.size(); ++i) {
    spec.merges.push_back(parse_merge(parts.merges[i], fmt::format("{}/{}", spec.merges_at, i)));
  }
  spec.tokens = std::move(parts.tokens);
  spec.ids = std::move(parts.ids);
  spec.add_bos = *parts.add_bos;
  spec.assumed = std::move(parts.assumed);
  return spec;
}

}  // namespace

Tokenizer Tokenizer::from_parts(Parts parts) {
  const bool byte_level = parts.model == "gpt2";
  if (!byte_level && parts.model != "llama" && parts.model != "t5") {
    throw Error({parts.file + ": tokenizer.ggml.model", fmt::format("\"{}\"", parts.model),
                 "\"gpt2\" (byte-level BPE), \"llama\" or \"t5\" (SentencePiece)",
                 "Use a model with one of these tokenizers."});
  }
  const GgufPreTokenizer* pre_tokenizer = byte_level ? &pre_tokenizer_of(parts, parts.assumed) : nullptr;
  for (std::size_t i = 0; i < parts.tokens.size(); ++i) {
    if (parts.tokens[i].empty()) parts.tokens[i] = fmt::format("[EMPTY_{}]", i);  // as llama.cpp names it
  }
  complete_types(parts);
  complete_ids(parts);
  decide_bos(parts, byte_level ? pre_tokenizer->add_bos : parts.model == "llama");
  return build(byte_level ? byte_level_spec(std::move(parts), *pre_tokenizer)
                          : sentencepiece_parts_spec(std::move(parts)));
}

}  // namespace speclab
