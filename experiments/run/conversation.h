#pragma once

#include <string>
#include <vector>

#include "core/model/text/chat_template.h"
#include "core/model/text/tokenizer.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// Makes the tokens of a prompt, turn by turn. The model's own answers are the history of the next turn.
/// With a tokenizer, the whole conversation is rendered (chat template or plain) and encoded anew at each
/// turn. Without one, a turn is a text of token ids, and the tokens of an answer are kept as they are. A
/// prompt that was rendered before the run is encoded as it is.
class Conversation {
 public:
  /// The models must outlive the conversation. Throws Error for a rendered prompt with a system message.
  Conversation(const ModelSet& models, const PromptSpec& prompt, const std::string& system);
  int turns() const { return static_cast<int>(prompt_.turns.size()); }
  int turn() const { return turn_; }
  /// The tokens of everything before the answer of the present turn.
  const std::vector<Token>& tokens() const { return tokens_; }
  /// Takes the answer of this turn, end tokens included, and goes on to the next turn. Like the constructor,
  /// throws Error for a prompt without tokens. Without a tokenizer, it throws Error for words that are not
  /// ids of the model's tokens.
  void answer(TokenSpan tokens);

 private:
  void ask();

  const ModelSet& models_;
  const PromptSpec& prompt_;
  int turn_ = 0;
  std::vector<Message> messages_;
  std::vector<Token> tokens_;
};

/// Returns the text of each token in whole characters. If several tokens make up one character, the character
/// appears at the last of them. Special tokens are spelled out. Without a tokenizer, the texts are the ids.
std::vector<std::string> token_pieces(const ModelSet& models, TokenSpan tokens);
/// Returns the text of all tokens without special tokens. Without a tokenizer, the text consists of the ids.
std::string answer_text(const ModelSet& models, TokenSpan tokens);

}  // namespace speclab
