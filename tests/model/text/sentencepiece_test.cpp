// Compares with SentencePiece and with Hugging Face's `tokenizers` through the golden file of
// scripts/oracle/sentencepiece_models.py.
#include "core/model/text/sentencepiece_model.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "tests/model/text/character_maps.h"
#include "tests/model/text/tokenizer_golden.h"

namespace speclab::sentencepiece_test {
namespace {

using namespace golden;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Json golden_file() {
  const char* other = std::getenv("SPECLAB_SENTENCEPIECE_GOLDEN");
  return Json::parse(read_file(other != nullptr ? fs::path(other) : kGolden / "sentencepiece.json"));
}

std::string model_bytes(const std::string& name) { return read_file(kGolden / name); }

/// Compares ids and decoded text of every string. `without` is left out before decoding (SentencePiece has
/// its own sign for unknown characters); special tokens too if `skip_special`.
void expect_same(const Tokenizer& tokenizer, const Json& one, std::optional<Token> without,
                 bool skip_special) {
  static const Generator generator;
  const std::string name = one["name"];
  const std::vector<std::string> hashes = unpack(one["ids"]), texts = unpack(one["decoded"]);
  ASSERT_EQ(hashes.size(), texts.size());
  Tally ids_tally, text_tally;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const std::string text = generator.text(i);
    std::vector<Token> ids = tokenizer.encode(text, i % 2 == 1);
    ids_tally.compare(digest(ids), hashes[i], [&] {
      return fmt::format("{}, string {}: \"{}\" gave {}", name, i, escaped(text), joined(ids));
    });
    if (without) std::erase(ids, *without);
    const std::string decoded = tokenizer.decode(ids, skip_special);
    text_tally.compare(sha256_hex(decoded).substr(0, 6), texts[i], [&] {
      return fmt::format("{}, string {}: ids {} gave \"{}\"", name, i, joined(ids), escaped(decoded));
    });
    EXPECT_EQ(streamed(tokenizer, ids, skip_special), unicode::replace_invalid(decoded)) << name << " " << i;
  }
}

TEST(SentencePiece, GivesTheIdsOfItsModelFiles) {
  const Json golden = golden_file();
  ASSERT_EQ(golden["models"].size(), 4u);
  for (const Json& one : golden["models"]) {
    const std::string file = one["model"];
    const Tokenizer tokenizer = Tokenizer::from_sentencepiece(model_bytes(file), file);
    EXPECT_EQ(tokenizer.bos(), std::optional<Token>(1));
    EXPECT_EQ(tokenizer.eos(), std::optional<Token>(2));
    EXPECT_TRUE(tokenizer.add_bos());
    expect_same(tokenizer, one, tokenizer.unk(), true);
  }
}

Tokenizer::Parts gguf_parts(const std::string& file) {
  SentencePieceSpec spec = parse_sentencepiece_file(model_bytes(file), file);
  Tokenizer::Parts parts;
  parts.file = "golden.gguf";
  parts.model = spec.kind == SentencePieceSpec::Kind::kBpe ? "llama" : "t5";
  for (const SentencePieceSpec::Piece& piece : spec.pieces) {
    parts.tokens.push_back(piece.text);
    parts.scores.push_back(piece.score);
    parts.token_types.push_back(piece.type);
  }
  parts.add_space_prefix = spec.add_dummy_prefix;
  parts.remove_extra_whitespaces = spec.remove_extra_whitespaces;
  parts.character_map = spec.character_map;
  return parts;
}

TEST(SentencePiece, GivesTheSameIdsFromGguf) {
  const Json golden = golden_file();
  for (const Json& one : golden["models"]) {
    const Tokenizer tokenizer = Tokenizer::from_parts(gguf_parts(one["model"]));
    const bool unigram = one["model"].get<std::string>().find("unigram") != std::string::npos;
    EXPECT_EQ(tokenizer.bos(), unigram ? std::nullopt : std::optional<Token>(1));  // as in llama.cpp
    EXPECT_EQ(tokenizer.eos(), std::optional<Token>(unigram ? 1 : 2));
    expect_same(tokenizer, one, tokenizer.unk(), true);
  }
}

/// Converters write <unk> as a control token, and user-defined pieces with spaces instead of marks.
TEST(SentencePiece, GivesTheSameIdsFromGgufAsConvertersWriteIt) {
  const Json golden = golden_file();
  for (const Json& one : golden["models"]) {
    Tokenizer::Parts parts = gguf_parts(one["model"]);
    const Token unk = Tokenizer::from_parts(parts).unk().value();
    parts.ids.unk = unk;
    parts.token_types.at(static_cast<std::size_t>(unk)) = SentencePieceSpec::kControl;
    int marks = 0;
    for (std::string& token : parts.tokens) {
      if (token == "\u2581\u2581") token = "  ", ++marks;
    }
    EXPECT_EQ(marks, 1);
    const Tokenizer tokenizer = Tokenizer::from_parts(parts);
    EXPECT_EQ(tokenizer.unk(), unk);
    expect_same(tokenizer, one, unk, true);
    parts.ids.unk.reset();
    parts.token_types.at(static_cast<std::size_t>(unk)) = SentencePieceSpec::kUnknown;
    parts.token_types.at(5) = SentencePieceSpec::kUnknown;  // the first of several counts
    EXPECT_EQ(Tokenizer::from_parts(parts).unk(), unk);
  }
}

/// [lstrip, rstrip, normalized] or one more for single_word.
Json flags_of(const Json& values) {
  return {{"lstrip", values[0]},
          {"rstrip", values[1]},
          {"normalized", values[2]},
          {"single_word", values.size() > 3 && values[3].get<bool>()}};
}

/// The character map of the model whose name stands for it in the normalizer.
void add_map(Json& normalizer) {
  if (normalizer.is_null()) return;
  if (normalizer["type"] == "Sequence") {
    for (Json& step : normalizer["normalizers"]) add_map(step);
  }
  if (normalizer["type"] != "Precompiled") return;
  const std::string file = normalizer["precompiled_charsmap"];
  normalizer["precompiled_charsmap"] =
      fixtures::base64(parse_sentencepiece_file(model_bytes(file), file).character_map);
}

/// tokenizer.json as scripts/oracle/sentencepiece_models.py builds it.
std::string tokenizer_json(const Json& settings) {
  Json state = Json::parse(model_bytes("tiny_spaces_tokenizer.json"));
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder"})
    state[key] = settings.contains(key) ? settings[key] : Json();
  for (Json& token : state["added_tokens"]) {
    if (!settings.contains("strip") || !settings["strip"].contains(token["content"])) continue;
    token.update(flags_of(settings["strip"][token["content"].get<std::string>()]));
  }
  add_map(state["normalizer"]);
  if (settings.contains("unigram")) {
    const SentencePieceSpec spec =
        parse_sentencepiece_file(model_bytes("sp_unigram.model"), "sp_unigram.model");
    state["model"] = {{"type", "Unigram"}, {"vocab", Json::array()}, {"byte_fallback", settings["unigram"]}};
    state["added_tokens"] = Json::array();
    for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
      const SentencePieceSpec::Piece& piece = spec.pieces[i];
      state["model"]["vocab"].push_back(Json::array({piece.text, double{piece.score}}));
      if (piece.type == SentencePieceSpec::kUnknown) state["model"]["unk_id"] = i;
      if (piece.type == SentencePieceSpec::kUnknown || piece.type == SentencePieceSpec::kControl)
        state["added_tokens"].push_back(
            {{"id", i}, {"content", piece.text}, {"special", true}, {"normalized", false}});
    }
  }
  const Json& vocabulary = state["model"]["vocab"];
  std::map<std::string, std::size_t> ids;
  for (const auto& item : vocabulary.items()) {
    const bool unigram = vocabulary.is_array();
    ids.emplace(unigram ? item.value()[0].get<std::string>() : item.key(),
                unigram ? ids.size() : item.value().get<std::size_t>());
  }
  std::size_t size = ids.size();
  for (const Json& token : state["added_tokens"]) size += !ids.contains(token["content"]);
  if (!settings.contains("added")) return state.dump();
  for (const auto& item : settings["added"].items()) {
    const auto known = ids.find(item.key());
    Json token = {
        {"id", known == ids.end() ? size++ : known->second}, {"content", item.key()}, {"special", false}};
    token.update(flags_of(item.value()));
    state["added_tokens"].push_back(token);
  }
  return state.dump();
}

TEST(SentencePiece, GivesTheIdsOfTokenizerJson) {
  const Json golden = golden_file();
  ASSERT_EQ(golden["json"].size(), 12u);
  for (const Json& one : golden["json"]) {
    const std::string name = one["name"];
    expect_same(Tokenizer::from_json(tokenizer_json(one["settings"]), name), one, std::nullopt, false);
  }
}

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_file(const std::string& bytes) {
  return error_of([&] { Tokenizer::from_sentencepiece(bytes, "t.model"); });
}

TEST(SentencePiece, ItsFileSurvivesReadingAndWriting) {
  for (const char* file : {"sp_bpe.model", "sp_unigram.model"}) {
    const SentencePieceSpec spec = parse_sentencepiece_file(model_bytes(file), file);
    const std::string written = write_sentencepiece_file(spec);
    const SentencePieceSpec again = parse_sentencepiece_file(written, file);
    EXPECT_EQ(written, write_sentencepiece_file(again));
    EXPECT_EQ(again.kind, spec.kind);
    EXPECT_EQ(again.pieces.size(), spec.pieces.size());
    EXPECT_EQ(again.add_dummy_prefix, spec.add_dummy_prefix);
    EXPECT_EQ(again.remove_extra_whitespaces, spec.remove_extra_whitespaces);
    EXPECT_EQ(again.character_map, spec.character_map);
  }
}

TEST(SentencePiece, RefusesBrokenFiles) {
  EXPECT_THAT(error_of_file(""), HasSubstr("t.model: got no pieces"));
  EXPECT_THAT(error_of_file("\x0a\xff"), HasSubstr("t.model: got 0 bytes where a field needs 1"));
  EXPECT_THAT(error_of_file("{}"), HasSubstr("t.model: got"));
  EXPECT_THAT(error_of_file(std::string("\x12\x02\x18\x03", 4)),
              HasSubstr("got a SentencePiece model of type 3"));
  const std::string good = model_bytes("sp_bpe.model");
  for (std::size_t size = 0; size < good.size(); size += 97) {
    EXPECT_THAT(error_of_file(good.substr(0, size)), AnyOf(HasSubstr("t.model"), HasSubstr("no error")));
  }
  SentencePieceSpec spec = parse_sentencepiece_file(good, "t");
  const auto broken = [&](const std::function<void(SentencePieceSpec&)>& change) {
    SentencePieceSpec copy = spec;
    change(copy);
    return error_of([&] { SentencePieceModel::from_spec(copy, "t"); });
  };
  EXPECT_EQ(broken([](SentencePieceSpec&) {}), "no error");
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[300].text = s.pieces[301].text; }),
              HasSubstr("already defined"));
  EXPECT_THAT(
      broken([](SentencePieceSpec& s) { s.pieces[0].type = 1; }),
      AllOf(HasSubstr("unk is not defined"), HasSubstr("SentencePiece's library"), Not(HasSubstr("broken"))));
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[40].text.clear(); }),
              HasSubstr("piece must not be empty"));
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[7].type = 9; }), HasSubstr("type of piece 7"));
  // Pieces that break the library.
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[300].text = std::string(1025, 'e'); }),
              HasSubstr("t: piece 300: got 1025 bytes, expected at most 1024"));
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[300].text = std::string("\0e", 2); }),
              HasSubstr("t: piece 300: got a NUL byte"));
  EXPECT_THAT(broken([](SentencePieceSpec& s) { s.pieces[300].text = "\xc3"; }),
              HasSubstr("t: piece 300: got text that is not UTF-8"));
  const auto control = [](SentencePieceSpec& s) { s.pieces[1].text = "\xe2\x82\xac"; };
  EXPECT_THAT(
      broken(control),
      HasSubstr("t: piece 1: got the control piece \"\xe2\x82\xac\", expected more than one character"));
  spec.kind = SentencePieceSpec::Kind::kUnigram;  // this kind never finds the piece in a text
  EXPECT_EQ(broken(control), "no error");
}

/// The library would encode these samples while loading the file, and print differences.
TEST(SentencePiece, DoesNotRunTheSelfTestsOfAFile) {
  const std::string good = model_bytes("sp_bpe.model"), fails(
                                                            "\x22\x09\x0a\x07\x0a\x02"
                                                            "co\x12\x01"
                                                            "a",
                                                            11);
  EXPECT_EQ(without_self_tests(fails + good + fails, "t"), good);
  EXPECT_EQ(error_of_file(good + fails), "no error");
}

TEST(SentencePiece, RefusesTextsThatTheLibraryCannotCount) {
  const Tokenizer tokenizer = Tokenizer::from_sentencepiece(model_bytes("sp_unigram.model"), "t.model");
  const std::string text(INT32_MAX / (3 * 255), 'e');  // a rule turns a byte into at most 255 bytes
  EXPECT_THAT(error_of([&] { tokenizer.encode(text); }),
              HasSubstr("text to encode with SentencePiece: got 2807168 bytes, expected at most 2807167"));
}

/// The library follows the links of the character map unchecked.
TEST(SentencePiece, RefusesCharacterMapsThatPointOutside) {
  const SentencePieceSpec spec = parse_sentencepiece_file(model_bytes("sp_unigram.model"), "t");
  ASSERT_GT(spec.character_map.size(), 1024u);
  const auto error_with = [&](const std::string& map) {
    SentencePieceSpec copy = spec;
    copy.character_map = map;
    return error_of([&] { SentencePieceModel::from_spec(copy, "t"); });
  };
  EXPECT_EQ(error_with(spec.character_map), "no error");
  std::string map = spec.character_map;
  map[4 + 3] = '\x7f';  // the root's offset
  EXPECT_THAT(error_with(map), HasSubstr("t: character map: got a link from 0 beyond"));
  map = spec.character_map, map.back() = 'x';
  EXPECT_THAT(error_with(map), HasSubstr("texts that do not end with a NUL byte"));
  EXPECT_THAT(error_with("abc"), HasSubstr("got 3 bytes with a trie of 0"));
  EXPECT_THAT(error_with(spec.character_map.substr(0, 1000)), HasSubstr("got 1000 bytes with a trie of"));
  int texts_outside = 0;
  for (std::size_t at = 4; at + 4 < spec.character_map.size(); at += 4) {
    map = spec.character_map;
    map[at + 2] = '\x7f';
    texts_outside += error_with(map).find("got a text at byte") != std::string::npos;
  }
  EXPECT_GT(texts_outside, 0);
}

TEST(SentencePiece, RefusesGgufKeysThatContradictEachOther) {
  const auto error_with = [](const std::function<void(Tokenizer::Parts&)>& change) {
    Tokenizer::Parts parts = gguf_parts("sp_bpe.model");
    change(parts);
    return error_of([&] { Tokenizer::from_parts(parts); });
  };
  EXPECT_EQ(error_with([](auto&) {}), "no error");
  EXPECT_THAT(error_with([](auto& p) { p.scores.clear(); }),
              HasSubstr("golden.gguf: tokenizer.ggml.scores: got 0"));
  EXPECT_THAT(error_with([](auto& p) { p.token_types.pop_back(); }),
              HasSubstr("tokenizer.ggml.token_type: got"));
  EXPECT_THAT(error_with([](auto& p) { p.ids.bos = 1'000'000; }), HasSubstr("bos token: got 1000000"));
}

TEST(SentencePiece, RefusesBrokenUnigramJson) {
  const Json settings = golden_file()["json"][4]["settings"];
  ASSERT_EQ(settings["unigram"], true);
  const auto error_with = [&](const std::string& pointer, const Json& value) {
    Json state = Json::parse(tokenizer_json(settings));
    state[Json::json_pointer(pointer)] = value;
    return error_of([&] { Tokenizer::from_json(state.dump(), "t.json"); });
  };
  EXPECT_EQ(error_with("/model/type", "Unigram"), "no error");
  EXPECT_THAT(error_with("/model/vocab", Json::array()), HasSubstr("/model/vocab: got [], expected pieces"));
  EXPECT_THAT(error_with("/model/vocab/3", {"a"}),
              HasSubstr("/model/vocab/3: got [\"a\"], expected [piece, score]"));
  EXPECT_THAT(error_with("/model/vocab/3", {"<s>", 0.5}), HasSubstr("every piece once"));
  EXPECT_THAT(error_with("/model/unk_id", nullptr), HasSubstr("/model/unk_id"));
  EXPECT_THAT(error_with("/model/unk_id", 100'000), HasSubstr("/model/unk_id: got 100000"));
  EXPECT_THAT(error_with("/pre_tokenizer", nullptr),
              HasSubstr("/pre_tokenizer: got null, expected Metaspace"));
  EXPECT_THAT(error_with("/pre_tokenizer/prepend_scheme", "last"),
              HasSubstr("expected \"always\", \"first\""));
  EXPECT_THAT(error_with("/pre_tokenizer/replacement", "_"), HasSubstr("replacement"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Precompiled"}}), HasSubstr("no \"precompiled_charsmap\""));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
              HasSubstr("t.json: /normalizer/precompiled_charsmap: got 3 bytes with a trie of 0"));
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_THAT(error_with("/normalizer", strip), HasSubstr("expected strip_left false"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "NFKC"}}), HasSubstr("tokenizer.model"));
  const Json deletes = {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}};
  Json state = Json::parse(tokenizer_json(settings));
  state["normalizer"] = deletes;
  state["added_tokens"][0]["content"] = "   ", state["added_tokens"][0]["normalized"] = true;
  state["model"]["vocab"][state["added_tokens"][0]["id"].get<std::size_t>()][0] = "   ";
  EXPECT_THAT(error_of([&] { Tokenizer::from_json(state.dump(), "t.json"); }),
              HasSubstr("which has 0 bytes after the normalizer"));
  const Json split = {{"type", "Whitespace"}};
  EXPECT_THAT(
      error_with("/pre_tokenizer",
                 {{"type", "Sequence"},
                  {"pretokenizers", {split, Json::parse(R"({"type":"Metaspace","replacement":"\u2581"})")}}}),
      HasSubstr("Metaspace, alone or after WhitespaceSplit"));
}

}  // namespace
}  // namespace speclab::sentencepiece_test
