#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"
#include "core/model/text/tokenizer_split.h"

namespace speclab {

/// Inside of Tokenizer: what llama.cpp knows about a tokenizer that its GGUF file does not say
/// (src/llama-vocab.cpp there). tests/golden/tokenizer/llama_cpp.json holds what its library does.

/// A value of tokenizer.ggml.pre, with the options of the model that goes with it.
struct GgufPreTokenizer {
  std::string_view name;
  std::vector<SplitStep> steps;
  bool ignore_merges = false;  ///< a word that is a token needs no merges
  bool add_bos = false;        ///< where tokenizer.ggml.add_bos_token is missing
  bool nfc = false;            ///< as tokenizers does for the models of that name; llama.cpp never normalises
};

/// All that are known. llama.cpp takes "default" where the key is missing.
const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

/// A token that llama.cpp takes for a control token because of its name.
struct ControlToken {
  Token token;
  bool ends;  ///< ends an answer as well
};

/// In id order. `stated`: fill-in-the-middle roles ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep",
/// "fim_sep") of which the file names the token, so that no name is looked for. Of several names of one role
/// the lowest id counts.
std::vector<ControlToken> control_tokens_by_name(std::span<const std::string> tokens,
                                                 const std::set<std::string, std::less<>>& stated);

}  // namespace speclab
