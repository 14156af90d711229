#pragma once

#include <string>
#include <vector>

#include "core/model/text/chat_template.h"
#include "core/model/text/tokenizer.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// A prompt as tokens, turn by turn: the model's own answers are the history of the next turn.
/// With a tokenizer the whole conversation is rendered (chat template or plain) and encoded anew at each
/// turn; without one turns are token ids as text, and the answer's tokens are kept as they are.
class Conversation {
 public:
  /// The models must outlive the conversation.
  Conversation(const ModelSet& models, const PromptSpec& prompt, const std::string& system);
  int turns() const { return static_cast<int>(prompt_.turns.size()); }
  int turn() const { return turn_; }
  /// Tokens of everything up to the answer of the present turn. Throws Error for ids that are none of the
  /// model's.
  const std::vector<Token>& tokens() const { return tokens_; }
  /// The answer of this turn, end tokens included; goes on to the next turn.
  void answer(TokenSpan tokens);

 private:
  void ask();

  const ModelSet& models_;
  const PromptSpec& prompt_;
  int turn_ = 0;
  std::vector<Message> messages_;
  std::vector<Token> tokens_;
};

/// Text of each token, whole characters only: bytes of an unfinished one appear at the token that ends it.
/// Special tokens are spelled out. Without a tokenizer: the ids.
std::vector<std::string> token_pieces(const ModelSet& models, TokenSpan tokens);
std::string answer_text(const ModelSet& models, TokenSpan tokens);

}  // namespace speclab
