#include <optional>
#include <vector>

#include "core/model/files/checkpoint.h"
#include "core/model/files/gguf.h"
#include "core/model/text/sentencepiece_model.h"
#include "core/model/text/tokenizer.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {
namespace {

void use(const Tokenizer& tokenizer, std::string_view input) {
  const std::string texts[] = {
      "Speculative d\xc3\xa9"
      "coding: 3 tokens, 1'st <|im_end|>\n\n \xf0\x9f\x98\x80",
      std::string(input.substr(0, 256))};
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      const std::vector<Token> ids = tokenizer.encode(text, special);
      StreamDecoder stream(tokenizer);
      for (const Token id : ids) {
        require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
        touch(bytes_of(tokenizer.token_bytes(id)));
        touch(bytes_of(stream.push(id)));
      }
      touch(bytes_of(stream.finish()));
      touch(bytes_of(tokenizer.decode(ids)));
    }
  }
  for (const Token id : tokenizer.end_of_generation())
    require(id >= 0 && id < tokenizer.vocab_size(), "an end outside the vocabulary");
  require(tokenizer.sha256().size() == 64, "a hash");
}

void use(const Checkpoint& model, std::string_view input) {
  for (const Checkpoint::TensorInfo& tensor : model.tensors()) {
    const std::int64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
    std::vector<float> row(static_cast<std::size_t>(tensor.shape.back()));
    for (std::int64_t i = 0; i < rows; ++i) model.read_f32(tensor.name, i, i + 1, row.data());
  }
  if (const std::optional<Tokenizer> tokenizer = model.tokenizer()) use(*tokenizer, input);
  read_chat_template(model.chat_template());
}

}  // namespace

bool read_gguf(std::string_view input) {
  const bool parsed = accepted([&] {
    const GgufFile file = GgufFile::parse(bytes_of(input), "f");
    touch_all(file.tensors());
    for (const auto& [key, value] : file.metadata()) {
      if (const auto* text = std::get_if<std::string_view>(&value)) touch(bytes_of(*text));
      const auto* array = std::get_if<GgufArray>(&value);
      if (array == nullptr) continue;
      touch(array->bytes);
      for (const std::string_view text : array->strings) touch(bytes_of(text));
      for (std::uint64_t i = 0; i < array->count; ++i) {
        if (array->holds_integers()) array->integer(i);
        if (array->holds_reals()) array->real(i);
      }
    }
  });
  if (!parsed) return false;
  const MemoryFile file(input);
  return accepted([&] { use(Checkpoint::open(file.path()), input); });
}

bool read_tokenizer(std::string_view input) {
  return accepted([&] { use(Tokenizer::from_json(input, "f"), input); });
}

bool read_sentencepiece(std::string_view input) {
  const bool file = accepted([&] { use(Tokenizer::from_sentencepiece(input, "f"), input); });
  const bool parts = accepted([&] {
    SentencePieceSpec spec = parse_sentencepiece_file(input, "f");
    Tokenizer::Parts gguf;
    gguf.file = "f";
    gguf.model = spec.kind == SentencePieceSpec::Kind::kBpe ? "llama" : "t5";
    for (SentencePieceSpec::Piece& piece : spec.pieces) {
      gguf.tokens.push_back(std::move(piece.text));
      gguf.scores.push_back(piece.score);
      gguf.token_types.push_back(piece.type);
    }
    gguf.add_space_prefix = spec.add_dummy_prefix;
    gguf.remove_extra_whitespaces = spec.remove_extra_whitespaces;
    gguf.character_map = std::move(spec.character_map);
    use(Tokenizer::from_parts(std::move(gguf)), input);
  });
  require(parts || !file, "a model that is refused only as GGUF has it");
  return file;
}

bool read_draft(std::string_view input) {
  const std::size_t zero = input.find('\0');
  write(scratch_folder() / "config.json", input.substr(0, zero));
  write(scratch_folder() / "model.safetensors", zero == input.npos ? "" : input.substr(zero + 1));
  return accepted([&] {
    const Checkpoint model = Checkpoint::open(scratch_folder());
    const ModelConfig& config = model.config();
    for (const Token id : config.head_ids)
      require(id >= 0 && id < config.vocab, "a head id outside the vocabulary");
    use(model, input);
  });
}

}  // namespace speclab::fuzz
