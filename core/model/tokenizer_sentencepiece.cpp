#include "core/base/error.h"
#include "core/model/sentencepiece_model.h"
#include "core/model/tokenizer_spec.h"

namespace speclab {

/// Tokens of a model that SentencePiece itself encodes. User-defined pieces are left to it as well; those
/// that have no text of their own are cut out before.
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
  // A model that drops spaces in front when it encodes gives none back: the library strips as long as there is no text.
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

TokenizerSpec sentencepiece_parts_spec(Tokenizer::Parts parts) {
  const auto refuse_count = [&](const char* what, std::size_t count) {
    if (count == parts.tokens.size()) return;
    throw Error({fmt::format("{}: tokenizer.ggml.{}", parts.file, what), fmt::format("{}", count),
                 fmt::format("one for each of {} tokens", parts.tokens.size()),
                 "The file contradicts itself; fetch or convert it again."});
  };
  refuse_count("scores", parts.scores.size());
  refuse_count("token_type", parts.token_types.size());
  SentencePieceSpec model;
  model.kind = parts.model == "llama" ? SentencePieceSpec::Kind::kBpe : SentencePieceSpec::Kind::kUnigram;
  for (std::size_t i = 0; i < parts.tokens.size(); ++i)
    model.pieces.push_back({std::move(parts.tokens[i]), parts.scores[i], parts.token_types[i]});
  model.add_dummy_prefix = parts.add_space_prefix;
  model.remove_extra_whitespaces = parts.remove_extra_whitespaces;
  model.character_map = std::move(parts.character_map);
  TokenizerSpec spec = sentencepiece_tokenizer_spec(
      SentencePieceModel::from_spec(std::move(model), parts.file + ": tokenizer.ggml"), parts.file,
      parts.file + ": tokenizer.ggml.token_type");
  spec.tokens_at = parts.file + ": tokenizer.ggml.tokens";
  const std::optional<Token> unk = parts.ids.unk ? parts.ids.unk : spec.ids.unk;
  spec.ids = std::move(parts.ids);  // the library knows the usual names only
  spec.ids.unk = unk;
  spec.add_bos = parts.add_bos;
  return spec;
}

}  // namespace speclab
