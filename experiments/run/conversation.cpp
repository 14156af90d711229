#include "experiments/run/conversation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "core/base/error.h"

namespace speclab {
namespace {

std::vector<Token> parse_ids(const std::string& text, int vocab, const std::string& prompt) {
  std::vector<Token> ids;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\n", at)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    Token id = -1;
    const auto [stop, code] = std::from_chars(text.data() + at, text.data() + end, id);
    if (code != std::errc{} || stop != text.data() + end || id < 0 || id >= vocab) {
      throw Error(
          {.what = fmt::format("prompt {}", prompt),
           .got = fmt::format("\"{}\"", text.substr(at, std::min<std::size_t>(end - at, 40))),
           .expected = fmt::format("token ids from 0 to {}, because the model has no tokenizer", vocab - 1),
           .advice = ""});
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

}  // namespace

Conversation::Conversation(const ModelSet& models, const PromptSpec& prompt, const std::string& system)
    : models_(models), prompt_(prompt) {
  if (!prompt.renderer.empty() && !system.empty()) {
    throw Error({.what = fmt::format("prompt {}", prompt.id),
                 .got = "a system message for a rendered prompt",
                 .expected = "no \"system\" in the config",
                 .advice = "Render the prompts with the system message."});
  }
  if (!system.empty()) messages_.push_back({"system", system});
  ask();
}

void Conversation::ask() {
  const std::string& text = prompt_.turns[static_cast<std::size_t>(turn_)];
  if (!models_.tokenizer()) {
    const std::vector<Token> ids = parse_ids(text, models_.target()->config().tokens(), prompt_.id);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  } else if (!prompt_.renderer.empty()) {
    tokens_ = models_.tokenizer()->encode(text, true);
  } else {
    messages_.push_back({"user", text});
    const Tokenizer& tokenizer = *models_.tokenizer();
    const ChatTemplate& form = models_.chat_template();
    const bool wrapped = !form.is_plain();  // the template then writes the BOS itself
    tokens_.clear();
    if (!wrapped && tokenizer.add_bos() && tokenizer.bos()) tokens_.push_back(*tokenizer.bos());
    const std::vector<Token> ids = tokenizer.encode(form.render(messages_, true), wrapped);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  }
  if (tokens_.empty()) {
    throw Error({.what = fmt::format("prompt {}", prompt_.id),
                 .got = "an empty text",
                 .expected = "at least one token",
                 .advice = ""});
  }
}

void Conversation::answer(TokenSpan tokens) {
  if (models_.tokenizer()) {
    messages_.push_back({"assistant", models_.tokenizer()->decode(tokens, true)});
  } else {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  if (++turn_ < turns()) ask();
}

std::vector<std::string> token_pieces(const ModelSet& models, TokenSpan tokens) {
  std::vector<std::string> pieces;
  if (!models.tokenizer()) {
    for (const Token token : tokens) pieces.push_back(fmt::format("{} ", token));
    return pieces;
  }
  StreamDecoder decoder(*models.tokenizer(), false);
  for (const Token token : tokens) pieces.push_back(decoder.push(token));
  if (!pieces.empty()) pieces.back() += decoder.finish();
  return pieces;
}

std::string answer_text(const ModelSet& models, TokenSpan tokens) {
  if (!models.tokenizer()) return fmt::format("{}", fmt::join(tokens, " "));
  StreamDecoder decoder(*models.tokenizer(), true);
  std::string text;
  for (const Token token : tokens) text += decoder.push(token);
  return text + decoder.finish();
}

}  // namespace speclab
