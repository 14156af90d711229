#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"
#include "core/model/text/tokenizer_split.h"

// Rules that GGUF files do not contain, because llama.cpp has them in its source (src/llama-vocab.cpp): how
// text is split, and which tokens are control tokens. Internal to Tokenizer.
// tests/golden/tokenizer/llama_cpp.json holds results of llama.cpp's library.

namespace speclab {

/// A value of tokenizer.ggml.pre, with the options of the models that use it.
struct GgufPreTokenizer {
  std::string_view name;
  std::vector<SplitStep> steps;
  bool ignore_merges = false;  ///< a word that is a token is not merged
  bool add_bos = false;        ///< used when tokenizer.ggml.add_bos_token is missing
  bool nfc = false;  ///< normalises to NFC, as `tokenizers` does for these models; llama.cpp never does
};

/// All known values. llama.cpp uses "default" when the key is missing.
const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

/// A token that llama.cpp treats as a control token because of its name.
struct ControlToken {
  Token token;
  bool ends;  ///< also ends an answer
};

/// Finds the control tokens by their names, in id order. `stated` are the fill-in-the-middle roles
/// ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep") whose token the file states. For these
/// roles no token is searched by name. If several tokens have names of one role, the one with the lowest id
/// counts.
std::vector<ControlToken> control_tokens_by_name(std::span<const std::string> tokens,
                                                 const std::set<std::string, std::less<>>& stated);

}  // namespace speclab
