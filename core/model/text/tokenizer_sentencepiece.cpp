#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/model/text/sentencepiece_model.h"
#include "core/model/text/tokenizer_spec.h"

namespace speclab {

/// The spec of a tokenizer that encodes texts with SentencePiece's library and `model`. The library also
/// finds user-defined pieces in a text. Control and unknown pieces are special tokens: with parse_special,
/// Tokenizer cuts them out before the library encodes.
TokenizerSpec sentencepiece_tokenizer_spec(SentencePieceModel model, const std::string& file,
                                           const std::string& types_at) {
  TokenizerSpec spec;
  spec.file = file;
  spec.tokens_at = file;
  spec.merges_at = file;
  spec.added_at = types_at;
  spec.scheme = TokenizerSpec::Scheme::kSentencePiece;
  const std::vector<SentencePieceSpec::Piece>& pieces = model.spec().pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    spec.tokens.push_back(pieces[i].text);
    const int type = pieces[i].type;
    if (type == SentencePieceSpec::kUnknown || type == SentencePieceSpec::kControl)
      spec.added.push_back({static_cast<Token>(i), true, false});
    spec.byte_fallback = spec.byte_fallback || type == SentencePieceSpec::kByte;
  }
  // A model that drops leading spaces when it encodes also drops them when it decodes: the library removes
  // the leading space mark of each token until the decoded text is not empty.
  spec.strip_marks_until_text = model.spec().remove_extra_whitespaces;
  spec.strip_first_space = model.spec().add_dummy_prefix && !spec.strip_marks_until_text;
  spec.ids = {.bos = model.bos(), .eos = model.eos(), .unk = model.unk(), .pad = model.pad()};
  spec.unk_symbol = model.unk();
  spec.sentencepiece = std::make_shared<const SentencePieceModel>(std::move(model));
  return spec;
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view tokenizer_model,
                                        std::string_view file_name_for_errors, const Ids& ids, bool add_bos) {
  const std::string file(file_name_for_errors);
  TokenizerSpec spec =
      sentencepiece_tokenizer_spec(SentencePieceModel::from_file(tokenizer_model, file), file, file);
  for (const auto id : {&Ids::bos, &Ids::eos, &Ids::unk, &Ids::pad}) {
    if (ids.*id) spec.ids.*id = ids.*id;
  }
  spec.ids.end_of_generation = ids.end_of_generation;
  spec.add_bos = add_bos && spec.ids.bos;
  return build(std::move(spec));
}

namespace {

/// Restores space marks in user-defined pieces. Converters write these marks as spaces, to match the original
/// text. SentencePiece searches the normalised text, in which spaces are marks.
void mark_user_defined(std::vector<SentencePieceSpec::Piece>& pieces) {
  std::unordered_map<std::string, std::size_t> marked;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].type != SentencePieceSpec::kUserDefined || pieces[i].text.find(' ') == std::string::npos)
      continue;
    std::string text;
    for (const char c : pieces[i].text) c == ' ' ? text += kSpaceMark : text += c;
    marked.try_emplace(std::move(text), i);
  }
  for (const SentencePieceSpec::Piece& piece : pieces)
    marked.erase(piece.text);  // do not make a duplicate of an existing piece
  for (const auto& [text, at] : marked) pieces[at].text = text;
}

/// The library requires exactly one piece of type unknown. Converters give this piece the type control if
/// tokenizer_config.json lists it among the special tokens.
void choose_unknown(std::vector<SentencePieceSpec::Piece>& pieces, std::optional<Token> unk) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (unk == static_cast<Token>(i)) {
      pieces[i].type = SentencePieceSpec::kUnknown;
    } else if (pieces[i].type == SentencePieceSpec::kUnknown) {
      pieces[i].type = SentencePieceSpec::kControl;
    }
  }
}

}  // namespace

TokenizerSpec sentencepiece_parts_spec(Tokenizer::Parts parts) {
  if (parts.scores.size() != parts.tokens.size()) {
    throw Error({parts.file + ": tokenizer.ggml.scores", fmt::format("{} scores", parts.scores.size()),
                 fmt::format("one for each of {} tokens", parts.tokens.size()),
                 "The file contradicts itself; fetch or convert it again."});
  }
  SentencePieceSpec model;
  model.kind = parts.model == "llama" ? SentencePieceSpec::Kind::kBpe : SentencePieceSpec::Kind::kUnigram;
  for (std::size_t i = 0; i < parts.tokens.size(); ++i)
    model.pieces.push_back({std::move(parts.tokens[i]), parts.scores[i], parts.token_types[i]});
  choose_unknown(model.pieces, parts.ids.unk);
  mark_user_defined(model.pieces);
  model.add_dummy_prefix = parts.add_space_prefix;
  model.remove_extra_whitespaces = parts.remove_extra_whitespaces;
  model.character_map = std::move(parts.character_map);
  TokenizerSpec spec = sentencepiece_tokenizer_spec(
      SentencePieceModel::from_spec(std::move(model), parts.file + ": tokenizer.ggml"), parts.file,
      parts.file + ": tokenizer.ggml.token_type");
  spec.tokens_at = parts.file + ": tokenizer.ggml.tokens";
  // The ids come from the file, because the library finds these tokens only by their usual names.
  spec.ids = std::move(parts.ids);
  spec.add_bos = *parts.add_bos;
  spec.assumed = std::move(parts.assumed);
  return spec;
}

}  // namespace speclab
