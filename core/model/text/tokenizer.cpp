#include "core/model/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/model/text/tokenizer_added.h"
#include "core/model/text/tokenizer_merge.h"
#include "core/model/text/tokenizer_spec.h"
#include "core/model/text/tokenizer_unigram.h"
#include "core/model/text/unicode/unicode.h"
#include "core/model/text/unicode/unicode_normal_form.h"

namespace speclab {
namespace {

/// Names of the special tokens that end an answer in common model families.
constexpr std::string_view kEndNames[] = {
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",          "<|eom_id|>", "<|end|>",
    "</s>",       "<eos>",         "<end_of_turn>",   "<|end_of_sentence|>", "<EOT>",      "<|return|>",
};

std::string mark_spaces(std::string_view text, bool prefix) {
  std::string marked;
  if (prefix && !text.empty()) marked += kSpaceMark;
  for (const char c : text) c == ' ' ? marked += kSpaceMark : marked += c;
  return marked;
}

std::string unmark_spaces(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      plain += ' ', at += kSpaceMark.size();
    } else {
      plain += text[at++];
    }
  }
  return plain;
}

/// A valid UTF-8 text without the white space at its end.
std::string_view stripped_right(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Decoded next = unicode::decode_one(text.substr(at));
    at += static_cast<std::size_t>(next.length);
    if (!unicode::is_space(next.code_point)) end = at;
  }
  return text.substr(0, end);
}

/// Replaces two or more consecutive spaces.
std::string with_space_runs(std::string_view text, std::string_view replacement) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end - at >= 2) {
      out += replacement, at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string byte_token_name(int byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace

char32_t byte_character(std::uint8_t byte) {
  const auto itself = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD); };
  if (itself(byte)) return byte;
  char32_t character = 0x100;
  for (int b = 0; b < byte; ++b) character += !itself(b);
  return character;
}

std::string bytes_of_spelling(std::string_view spelling) {
  static const auto byte_of = [] {
    std::array<std::int16_t, 0x200> table;
    table.fill(-1);
    for (int b = 0; b < 256; ++b)
      table[byte_character(static_cast<std::uint8_t>(b))] = static_cast<std::int16_t>(b);
    return table;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const unicode::Decoded next = unicode::decode_one(spelling.substr(at));
    if (!next.valid || next.code_point >= byte_of.size() || byte_of[next.code_point] < 0)
      return std::string(spelling);
    bytes += static_cast<char>(byte_of[next.code_point]);
    at += next.length;
  }
  return bytes;
}

struct Tokenizer::Data {
  TokenizerSpec spec;
  std::unordered_map<std::string_view, Token> by_spelling;  // views of spec.tokens
  std::vector<std::string> bytes;                           // [vocab]
  std::vector<bool> special;                                // [vocab]
  std::array<Token, 256> byte_tokens;  // by byte: its byte-level token, or the token <0x..>; -1: none
  MergeTable merges;
  UnigramModel unigram;
  AddedTokens added, added_normalized;
  std::vector<Token> ends;
  std::string sha256;

  std::string normalize(std::string_view text) const {
    std::string out = spec.nfc ? unicode::to_nfc(text) : std::string(text);
    if (spec.character_map) out = spec.character_map->normalize(out);
    if (spec.strip_right) out.resize(stripped_right(out).size());
    if (!spec.space_run.empty()) out = with_space_runs(out, spec.space_run);
    // The pre-tokeniser Metaspace marks spaces later, after added tokens are found.
    const bool marks = spec.scheme == TokenizerSpec::Scheme::kSpaceMark && !spec.metaspace;
    return marks ? mark_spaces(out, spec.prefix == TokenizerSpec::Prefix::kNormalizer) : out;
  }
  std::string plain_text(std::string_view spelling) const {
    return spec.scheme == TokenizerSpec::Scheme::kByteLevel ? bytes_of_spelling(spelling)
                                                            : unmark_spaces(spelling);
  }
  void check_id(std::optional<Token> token, std::string_view name) const;
  void index_tokens();
  void index_merges();
  void index_bytes();
  void index_scores();
  void index_added();
  void hash();
  void encode_ordinary(std::string_view text, bool at_start, std::vector<Token>& out) const;
  void encode_marked(std::string_view text, bool at_start, std::vector<Token>& out) const;
  void encode_word(std::string_view word, std::vector<Token>& out) const;
  void encode_bytes(std::string_view word, std::vector<Token>& symbols) const;
  void encode_characters(std::string_view word, std::vector<Token>& symbols) const;
};

void Tokenizer::Data::check_id(std::optional<Token> token, std::string_view name) const {
  if (!token || (*token >= 0 && *token < static_cast<Token>(spec.tokens.size()))) return;
  throw Error({fmt::format("{}: id of the {} token", spec.file, name), fmt::format("{}", *token),
               fmt::format("0..{}", spec.tokens.size() - 1),
               "The file contradicts itself; fetch or convert it again."});
}

void Tokenizer::Data::index_tokens() {
  if (spec.tokens.empty())
    throw Error({spec.tokens_at, "no tokens", "a vocabulary", "The file holds no tokenizer."});
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!spec.is_hole.empty() && spec.is_hole[i]) continue;
    const auto [first, added] = by_spelling.try_emplace(spec.tokens[i], static_cast<Token>(i));
    if (added) continue;
    throw Error({spec.tokens_at,
                 fmt::format("\"{}\" both as token {} and as token {}", spec.tokens[i], first->second, i),
                 "every token once", "The file is broken; fetch or convert it again."});
  }
  bytes.reserve(spec.tokens.size());
  for (const std::string& token : spec.tokens) {
    bytes.push_back(plain_text(token));
  }
  if (spec.byte_fallback) {
    for (int b = 0; b < 256; ++b) {
      const auto found = by_spelling.find(byte_token_name(b));
      if (found != by_spelling.end()) bytes[found->second] = std::string(1, static_cast<char>(b));
    }
  }
}

void Tokenizer::Data::index_merges() {
  merges = MergeTable(spec.merges.size());
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string &left = spec.merges[rank].first,
                      &right = spec.merges[rank].second;  // clang 14 cannot capture bindings
    const auto id = [&](const std::string& token) {
      if (const auto found = by_spelling.find(token); found != by_spelling.end()) return found->second;
      throw Error({fmt::format("{}/{}", spec.merges_at, rank),
                   fmt::format("\"{}\" in \"{} {}\"", token, left, right),
                   fmt::format("a token of {}", spec.tokens_at),
                   "The file contradicts itself; fetch or convert it again."});
    };
    const Token left_id = id(left), right_id = id(right);
    if (!merges.add(left_id, right_id, id(left + right))) {
      throw Error({fmt::format("{}/{}", spec.merges_at, rank),
                   fmt::format("\"{} {}\" a second time", left, right), "every pair once",
                   "The file is broken; fetch or convert it again."});
    }
  }
}

void Tokenizer::Data::index_bytes() {
  byte_tokens.fill(-1);
  const bool byte_level = spec.scheme == TokenizerSpec::Scheme::kByteLevel;
  for (int b = 0; b < 256; ++b) {
    std::string name;
    if (byte_level) {
      unicode::append_utf8(name, byte_character(static_cast<std::uint8_t>(b)));
    } else {
      name = byte_token_name(b);
    }
    if (const auto found = by_spelling.find(name); found != by_spelling.end()) byte_tokens[b] = found->second;
    if (!byte_level || byte_tokens[b] >= 0 || spec.unk_symbol) continue;
    // Real vocabularies lack some rare bytes, but never the line feed or printable ASCII.
    if (b == '\n' || (b >= 0x20 && b <= 0x7E)) {
      throw Error(
          {spec.tokens_at, fmt::format("no token for byte 0x{:02X}, written \"{}\"", b, name),
           "a byte-level vocabulary with tokens for the line feed and for all printable ASCII characters",
           "The file is broken or is no byte-level BPE."});
    }
  }
}

void Tokenizer::Data::index_scores() {
  if (spec.unigram_scores.empty()) return;
  std::vector<std::pair<std::string, double>> pieces;
  for (std::size_t i = 0; i < spec.unigram_scores.size(); ++i)
    pieces.emplace_back(spec.tokens[i], spec.unigram_scores[i]);
  unigram =
      UnigramModel(pieces, *spec.unk_symbol, spec.byte_fallback ? std::optional(byte_tokens) : std::nullopt);
}

void Tokenizer::Data::index_added() {
  special.assign(spec.tokens.size(), false);
  for (const TokenizerSpec::Added& token : spec.added) {
    const std::string& content = spec.tokens[token.token];
    if (content.empty() || content.size() > kMaxAddedTokenBytes) {
      throw Error({spec.added_at, fmt::format("token {} of {} bytes", token.token, content.size()),
                   fmt::format("1..{} bytes", kMaxAddedTokenBytes),
                   "The file is broken; fetch or convert it again."});
    }
    special[token.token] = token.special;
    const AddedTokens::Conditions conditions{token.left, token.right, token.single_word};
    if (token.normalized) {
      const std::string written = normalize(content);
      if (written.empty() || written.size() > kMaxAddedTokenBytes) {
        throw Error(
            {spec.added_at,
             fmt::format("token {}, which has {} bytes after the normalizer", token.token, written.size()),
             fmt::format("1..{} bytes", kMaxAddedTokenBytes), "Such a token cannot be found in a text."});
      }
      added_normalized.add(written, token.token, token.special, conditions);
      bytes[token.token] = plain_text(written);  // as in `tokenizers`: with a space for each mark
    } else {
      added.add(content, token.token, token.special, conditions);
    }
  }
  const Ids& ids = spec.ids;
  check_id(ids.bos, "bos"), check_id(ids.eos, "eos"), check_id(ids.unk, "unk"), check_id(ids.pad, "pad");
  ends = ids.end_of_generation;
  for (const Token token : ends) check_id(token, "end-of-generation");
  if (ids.eos) ends.push_back(*ids.eos);
  for (const std::string_view name : kEndNames) {
    const auto found = by_spelling.find(name);
    if (found != by_spelling.end() && special[found->second]) ends.push_back(found->second);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

void Tokenizer::Data::hash() {
  // Builds one string, which is faster than a hundred thousand small updates.
  std::string text;
  for (const std::string& token : spec.tokens) text.append(token).push_back('\0');
  for (const auto& [left, right] : spec.merges) text.append(left).append(" ").append(right).push_back('\0');
  sha256 = sha256_hex(text);
}

void Tokenizer::Data::encode_bytes(std::string_view word, std::vector<Token>& symbols) const {
  bool unknown = false;  // the previous byte had no token
  for (const char c : word) {
    const Token token = byte_tokens[static_cast<std::uint8_t>(c)];
    if (token >= 0) {
      symbols.push_back(token);
    } else if (spec.unk_symbol && !(unknown && spec.fuse_unk)) {
      symbols.push_back(*spec.unk_symbol);
    }
    unknown = token < 0;
  }
}

void Tokenizer::Data::encode_characters(std::string_view word, std::vector<Token>& symbols) const {
  bool pending = false;  // an unknown symbol is pending: later ones may join it, and it is written before the
                         // next known character
  for (std::size_t at = 0; at < word.size();) {
    const int length = unicode::decode_one(word.substr(at)).length;
    const std::string_view character = word.substr(at, length);
    at += length;
    if (const auto found = by_spelling.find(character); found != by_spelling.end()) {
      if (pending) symbols.push_back(*spec.unk_symbol);
      pending = false;
      symbols.push_back(found->second);
      continue;
    }
    const auto byte_token = [&](char byte) { return byte_tokens[static_cast<std::uint8_t>(byte)]; };
    if (spec.byte_fallback &&
        std::ranges::all_of(character, [&](char byte) { return byte_token(byte) >= 0; })) {
      for (const char byte : character) symbols.push_back(byte_token(byte));
      continue;
    }
    if (!spec.unk_symbol) continue;
    if (pending && !spec.fuse_unk) symbols.push_back(*spec.unk_symbol);
    pending = true;
  }
  if (pending) symbols.push_back(*spec.unk_symbol);
}

/// Encodes the text between added tokens. `at_start` says that the text has nothing before it.
void Tokenizer::Data::encode_ordinary(std::string_view text, bool at_start, std::vector<Token>& out) const {
  if (!spec.metaspace) {
    for (const std::string_view word : split_words(spec.steps, text)) encode_word(word, out);
    return;
  }
  if (!spec.cut_at_white_space) return encode_marked(text, at_start, out);
  for (std::size_t at = 0, begin = 0; at <= text.size();) {
    const bool inside = at < text.size();
    const unicode::Decoded next =
        inside ? unicode::decode_one(text.substr(at)) : unicode::Decoded{U' ', 1, true, false};
    if (unicode::is_space(next.code_point)) {
      if (begin < at) encode_marked(text.substr(begin, at - begin), at_start && begin == 0, out);
      begin = at + static_cast<std::size_t>(next.length);
    }
    at += static_cast<std::size_t>(next.length);
  }
}

/// Writes spaces as U+2581, adds a U+2581 in front if the pre-tokeniser does so, and encodes the result.
void Tokenizer::Data::encode_marked(std::string_view text, bool at_start, std::vector<Token>& out) const {
  std::string marked = mark_spaces(text, false);
  const bool prefix = spec.prefix == TokenizerSpec::Prefix::kAlways ||
                      (spec.prefix == TokenizerSpec::Prefix::kFirst && at_start);
  if (prefix && !marked.starts_with(kSpaceMark)) marked.insert(0, kSpaceMark);
  for (std::string_view rest = marked; !rest.empty();) {
    const std::size_t next = spec.words_begin_at_marks ? rest.find(kSpaceMark, 1) : rest.npos;
    encode_word(rest.substr(0, next), out);
    rest.remove_prefix(std::min(next, rest.size()));
  }
}

void Tokenizer::Data::encode_word(std::string_view word, std::vector<Token>& out) const {
  if (!spec.unigram_scores.empty()) return unigram.encode(word, out);
  const bool byte_level = spec.scheme == TokenizerSpec::Scheme::kByteLevel;
  if (spec.ignore_merges) {
    std::string spelling;
    if (byte_level) {
      for (const char c : word) unicode::append_utf8(spelling, byte_character(static_cast<std::uint8_t>(c)));
    } else {
      spelling = word;
    }
    if (const auto found = by_spelling.find(spelling); found != by_spelling.end()) {
      out.push_back(found->second);
      return;
    }
  }
  thread_local std::vector<Token> symbols;
  symbols.clear();
  byte_level ? encode_bytes(word, symbols) : encode_characters(word, symbols);
  merges.merge(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

Tokenizer::Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

Tokenizer Tokenizer::build(TokenizerSpec spec) {
  auto data = std::make_shared<Data>();
  data->spec = std::move(spec);
  data->index_tokens();
  data->index_merges();
  data->index_bytes();
  data->index_scores();
  data->index_added();
  data->hash();
  return Tokenizer(std::move(data));
}

std::vector<Token> Tokenizer::encode(std::string_view text, bool parse_special) const {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  if (text.size() > kMost) {
    throw Error(
        {"text to encode", fmt::format("{} bytes", text.size()), fmt::format("at most {}", kMost), ""});
  }
  const std::string valid = unicode::replace_invalid(text);
  std::vector<Token> tokens;
  for (const AddedTokens::Section& raw : data_->added.split(valid, parse_special)) {
    if (raw.token >= 0) {
      tokens.push_back(raw.token);
      continue;
    }
    if (data_->spec.sentencepiece) {
      data_->spec.sentencepiece->encode(raw.text, tokens);
      continue;
    }
    const std::string normalized = data_->normalize(raw.text);
    for (const AddedTokens::Section& section : data_->added_normalized.split(normalized, parse_special)) {
      if (section.token >= 0) {
        tokens.push_back(section.token);
        continue;
      }
      const bool at_start = raw.text.data() == valid.data() && section.text.data() == normalized.data();
      data_->encode_ordinary(section.text, at_start, tokens);
    }
  }
  return tokens;
}

std::string Tokenizer::decode(TokenSpan tokens, bool skip_special) const {
  std::string text;
  bool first = data_->spec.first_token_without_spaces;
  for (const Token token : tokens) {
    if (skip_special && is_special(token)) continue;
    text += text.empty() ? first_bytes(token) : token_bytes(token);
    if (first) std::erase(text, ' ');
    first = false;
  }
  if (data_->spec.strip_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string_view Tokenizer::first_bytes(Token token) const {
  std::string_view bytes = token_bytes(token);
  if (data_->spec.strip_marks_until_text && spelling(token).starts_with(kSpaceMark)) bytes.remove_prefix(1);
  return bytes;
}

std::string_view Tokenizer::token_bytes(Token token) const {
  SPECLAB_CHECK(token >= 0, "token {}", token);
  return token < vocab_size() ? std::string_view(data_->bytes[token]) : std::string_view();
}

std::string_view Tokenizer::spelling(Token token) const {
  SPECLAB_CHECK(token >= 0, "token {}", token);
  return token < vocab_size() ? std::string_view(data_->spec.tokens[token]) : std::string_view();
}

std::optional<Token> Tokenizer::find(std::string_view spelling) const {
  const auto found = data_->by_spelling.find(spelling);
  return found == data_->by_spelling.end() ? std::nullopt : std::optional(found->second);
}

int Tokenizer::vocab_size() const { return static_cast<int>(data_->spec.tokens.size()); }
bool Tokenizer::is_special(Token token) const {
  return token >= 0 && token < vocab_size() && data_->special[token];
}
std::optional<Token> Tokenizer::bos() const { return data_->spec.ids.bos; }
std::optional<Token> Tokenizer::eos() const { return data_->spec.ids.eos; }
std::optional<Token> Tokenizer::unk() const { return data_->spec.ids.unk; }
std::optional<Token> Tokenizer::pad() const { return data_->spec.ids.pad; }
bool Tokenizer::add_bos() const { return data_->spec.add_bos; }
const std::vector<Token>& Tokenizer::end_of_generation() const { return data_->ends; }
const std::vector<std::string>& Tokenizer::assumed() const { return data_->spec.assumed; }
std::string Tokenizer::sha256() const { return data_->sha256; }

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::push(Token token) {
  if (skip_special_ && tokenizer_.is_special(token)) return {};
  const TokenizerSpec& spec = tokenizer_.data_->spec;
  std::string bytes(at_start_ ? tokenizer_.first_bytes(token) : tokenizer_.token_bytes(token));
  if (at_start_ && spec.first_token_without_spaces) {
    std::erase(bytes, ' ');
    at_start_ = false;
  }
  if (bytes.empty()) return {};
  if (at_start_ && spec.strip_first_space && bytes.starts_with(' ')) bytes.erase(0, 1);
  at_start_ = false;
  held_ += bytes;
  std::string text;
  std::size_t at = 0;
  while (at < held_.size()) {
    const unicode::Decoded next = unicode::decode_one(std::string_view(held_).substr(at));
    if (next.truncated) break;
    unicode::append_utf8(text, next.code_point);
    at += next.length;
  }
  held_.erase(0, at);
  return text;
}

std::string StreamDecoder::finish() {
  const std::string rest = unicode::replace_invalid(held_);
  held_.clear();
  at_start_ = true;
  return rest;
}

}  // namespace speclab
