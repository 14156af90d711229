#include "core/model/text/gguf_tokenizer_rules.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>

namespace speclab {
namespace {

using Names = std::initializer_list<std::string_view>;

std::vector<GgufPreTokenizer> make_pre_tokenizers() {
  using enum SplitStep;
  std::vector<GgufPreTokenizer> all;
  const auto add = [&](Names names, const std::vector<SplitStep>& steps) {
    for (const std::string_view name : names) all.push_back({.name = name, .steps = steps});
  };
  add({"default"}, {kSigns, kGpt2, kNumbers, kThreeDigits});
  add({"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat", "a.x-4.0", "mellum", "exaone4",
       "granite-docling"},
      {kGpt2});
  add({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {kDigits, kGpt2});
  add({"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"}, {kLlama3});
  for (const std::string_view name :
       Names{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}) {
    all.push_back({.name = name, .steps = {kLlama3}, .ignore_merges = true, .add_bos = true});
  }
  all.push_back({.name = "qwen2", .steps = {kQwen2}, .nfc = true});
  add({"deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"}, {kQwen2});
  add({"deepseek-llm"},
      {kLineEnds, kDeepSeekLetters, kDeepSeekSymbols, kTrailingSpaces, kEastAsian, kDigits});
  add({"deepseek-coder"}, {kLineEnds, kSpaceLetters, kSpacePunctuation, kEastAsian, kDigits});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {kThreeNumbers, kHanAndKana, kDeepSeek3});
  return all;
}

/// Tokens that end an answer.
constexpr std::array<std::string_view, 22> kEnds = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "</s>",
    "<|endoftext|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<turn|>",
    "[e~[",
    "<|tool_response>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",  // DeepSeek
};

struct Role {
  std::string_view role;
  bool ends;
  std::vector<std::string_view> names;
};

/// Fill-in-the-middle tokens, by role.
const std::vector<Role>& roles() {
  static const std::vector<Role> all = {
      {"fim_pre",
       false,
       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uFF5Cfim\u2581begin\uFF5C>", "<PRE>",
        "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"}},
      {"fim_suf",
       false,
       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uFF5Cfim\u2581hole\uFF5C>", "<SUF>",
        "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"}},
      {"fim_mid",
       false,
       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uFF5Cfim\u2581end\uFF5C>", "<MID>",
        "\u2581<MID>", "<|code_middle|>", "<|middle|>"}},
      {"fim_pad", true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
      {"fim_rep", true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
      {"fim_sep", true, {"<|file_sep|>"}},
  };
  return all;
}

}  // namespace

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers() {
  static const std::vector<GgufPreTokenizer> all = make_pre_tokenizers();
  return all;
}

std::vector<ControlToken> control_tokens_by_name(std::span<const std::string> tokens,
                                                 const std::set<std::string, std::less<>>& stated) {
  std::map<std::string_view, const Role*> role_of;
  for (const Role& role : roles()) {
    if (stated.contains(role.role)) continue;
    for (const std::string_view name : role.names) role_of.emplace(name, &role);
  }
  std::set<const Role*> taken;
  std::vector<ControlToken> found;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (std::ranges::find(kEnds, tokens[i]) != kEnds.end()) {
      found.push_back({token, true});
    } else if (const auto role = role_of.find(tokens[i]);
               role != role_of.end() && taken.insert(role->second).second) {
      found.push_back({token, role->second->ends});
    }
  }
  return found;
}

}  // namespace speclab
