#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/model/text/tokenizer_spec.h"

namespace speclab {
namespace {

using Json = nlohmann::json;

std::string shown_value(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kMost = 120;
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

/// A JSON value and its path, so that every error names the place.
class Node {
 public:
  Node(const Json& value, std::string file, std::string path)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& value() const { return value_; }
  std::string where() const { return file_ + ": " + (path_.empty() ? "/" : path_); }

  [[noreturn]] void refuse(const std::string& expected, const std::string& advice = {}) const {
    throw Error({where(), shown_value(value_), expected, advice});
  }

  bool is_null() const { return value_.is_null(); }
  /// The member `key`, or null.
  Node get(const std::string& key) const {
    static const Json kNull;
    if (!value_.is_object()) refuse("an object");
    const auto found = value_.find(key);
    return {found == value_.end() ? kNull : *found, file_, path_ + "/" + key};
  }
  Node at(const std::string& key) const {
    if (!value_.is_object()) refuse("an object");
    if (!value_.contains(key))
      throw Error({where(), "no \"" + key + "\"", "one", "Is this a tokenizer.json?"});
    return get(key);
  }
  std::vector<Node> items() const {
    if (!value_.is_array()) refuse("an array");
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < value_.size(); ++i)
      nodes.emplace_back(value_[i], file_, fmt::format("{}/{}", path_, i));
    return nodes;
  }
  std::string string() const {
    if (!value_.is_string()) refuse("a string");
    return value_.get<std::string>();
  }
  /// The boolean member `key`; `absent` when it is null or missing.
  bool flag(const std::string& key, bool absent) const {
    const Node node = get(key);
    if (node.is_null()) return absent;
    if (!node.value_.is_boolean()) node.refuse("true or false");
    return node.value_.get<bool>();
  }
  /// A token id below `limit`.
  Token id(std::size_t limit) const {
    if (!value_.is_number_integer()) refuse("a token id");
    if (value_ < 0 || value_ >= limit) refuse(fmt::format("0..{} (only few ids may be unused)", limit - 1));
    return value_.get<Token>();
  }
  std::string type() const { return at("type").string(); }

 private:
  const Json& value_;
  std::string file_, path_;
};

/// Turns the vocabulary of a unigram model, [[piece, score], ...], into an object {piece: id}, the form that
/// other models have. Stores the scores in `spec`.
Json read_unigram_vocab(const Node& vocab, TokenizerSpec& spec) {
  Json ids = Json::object();
  for (const Node& entry : vocab.items()) {
    const std::vector<Node> pair = entry.items();
    if (pair.size() != 2 || !pair[1].value().is_number()) entry.refuse("[piece, score]");
    if (!ids.emplace(pair[0].string(), spec.unigram_scores.size()).second) entry.refuse("every piece once");
    spec.unigram_scores.push_back(pair[1].value().get<double>());
  }
  if (ids.empty()) vocab.refuse("pieces");
  return ids;
}

/// Largest number of ids without a token. Each of them costs memory.
constexpr std::size_t kMostHoles = 4096;

/// Collects spellings by id.
class Vocabulary {
 public:
  Vocabulary(TokenizerSpec& spec, std::size_t tokens) : spec_(spec), limit_(tokens + kMostHoles) {}

  void place(const Node& at, Token id, const std::string& token) {
    const auto [first, fresh] = spellings_.try_emplace(id, token);
    if (!fresh) {
      throw Error({at.where(), fmt::format("id {} for \"{}\"", id, token),
                   fmt::format("another id: \"{}\" has this one", first->second),
                   "Two tokens cannot have one id."});
    }
  }
  Token id(const Node& node) const { return node.id(limit_); }

  void finish() {
    if (spellings_.empty()) return;
    const std::size_t size = static_cast<std::size_t>(spellings_.rbegin()->first) + 1;
    spec_.tokens.resize(size);
    spec_.is_hole.assign(size, true);
    for (auto& [id, token] : spellings_) {
      spec_.tokens[static_cast<std::size_t>(id)] = std::move(token);
      spec_.is_hole[static_cast<std::size_t>(id)] = false;
    }
  }

 private:
  TokenizerSpec& spec_;
  std::size_t limit_;
  std::map<Token, std::string> spellings_;
};

void read_tokens(const Node& root, const Node& vocab, TokenizerSpec& spec) {
  if (!vocab.value().is_object()) vocab.refuse("an object of token to id");
  const std::vector<Node> added =
      root.get("added_tokens").is_null() ? std::vector<Node>{} : root.get("added_tokens").items();
  Vocabulary tokens(spec, vocab.value().size() + added.size());
  for (const auto& item : vocab.value().items()) {
    const Node node(item.value(), spec.file, "/model/vocab/" + item.key());
    tokens.place(node, tokens.id(node), item.key());
  }
  // Added tokens that the vocabulary lacks: the library `tokenizers` ignores their ids and numbers them from
  // the size of the vocabulary on.
  auto next = static_cast<Token>(vocab.value().size());
  std::map<std::string, Token> ids;  // ids of added tokens that the vocabulary lacks
  for (const Node& token : added) {
    const std::string content = token.at("content").string();
    const Node stated = token.at("id");
    Token id = tokens.id(stated);
    if (const auto known = vocab.value().find(content); known != vocab.value().end()) {
      if (*known != id)
        token.refuse(fmt::format("id {} as in /model/vocab", shown_value(*known)),
                     "The file contradicts itself.");
    } else if (const auto again = ids.find(content); again != ids.end()) {
      id = again->second;
    } else {
      if (next != id) {
        spec.assumed.push_back(
            fmt::format("{} gives the added token {} the id {}: read as {}, the number that the library "
                        "tokenizers gives it",
                        stated.where(), content, id, next));
      }
      tokens.place(stated, id = next++, content);
      ids.emplace(content, id);
    }
    const bool special = token.flag("special", false);
    spec.added.push_back({id, special, token.flag("normalized", !special), token.flag("lstrip", false),
                          token.flag("rstrip", false), token.flag("single_word", false)});
  }
  tokens.finish();
}

void read_merges(const Node& root, TokenizerSpec& spec) {
  const Node merges = root.at("model").at("merges");
  for (const Node& merge : merges.items()) {
    const char* expected = "two tokens: \"left right\" or [\"left\", \"right\"]";
    if (merge.value().is_array() && merge.value().size() == 2) {
      const std::vector<Node> pair = merge.items();
      std::string left = pair[0].string();
      spec.merges.emplace_back(std::move(left), pair[1].string());
      continue;
    }
    if (!merge.value().is_string()) merge.refuse(expected);
    const std::string text = merge.string();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == text.size() ||
        text.find(' ', space + 1) != text.npos) {
      merge.refuse(expected);
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

void read_bpe(const Node& root, const Node& model, TokenizerSpec& spec) {
  if (const Node dropout = model.get("dropout"); !dropout.is_null() && dropout.value() != 0.0)
    dropout.refuse("null");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Node node = model.get(affix);
    if (!node.is_null() && node.value() != "") node.refuse("null", "Word affixes are not supported.");
  }
  read_tokens(root, model.at("vocab"), spec);
  read_merges(root, spec);
  spec.ignore_merges = model.flag("ignore_merges", false);
  spec.fuse_unk = model.flag("fuse_unk", false);
  if (const Node unk = model.get("unk_token"); !unk.is_null()) {
    const auto found = std::ranges::find(spec.tokens, unk.string());
    if (found == spec.tokens.end()) unk.refuse("a token of /model/vocab");
    spec.unk_symbol = static_cast<Token>(found - spec.tokens.begin());
  }
}

void read_model(const Node& root, TokenizerSpec& spec) {
  const Node model = root.at("model");
  spec.byte_fallback = model.flag("byte_fallback", false);
  const Node type = model.get("type");
  if (type.is_null() || type.string() == "BPE") return read_bpe(root, model, spec);
  if (type.string() != "Unigram") type.refuse("\"BPE\" or \"Unigram\"", "Other models are not supported.");
  const Json vocab = read_unigram_vocab(model.at("vocab"), spec);
  read_tokens(root, Node(vocab, spec.file, "/model/vocab"), spec);
  spec.unk_symbol = model.at("unk_id").id(spec.unigram_scores.size());
}

/// The list in {"type": "Sequence", `key`: [...]}; otherwise the node itself; empty for null.
std::vector<Node> sequence(const Node& node, const std::string& key) {
  if (node.is_null()) return {};
  if (node.type() != "Sequence") return {node};
  return node.at(key).items();
}

bool is_replacement(const Node& node, std::string_view from, std::string_view to) {
  return node.type() == "Replace" && node.at("pattern").get("String").value() == from &&
         node.at("content").value() == to;
}

/// Whether the node replaces two or more consecutive spaces by one space or one mark.
bool replaces_space_runs(const Node& node) {
  return node.type() == "Replace" && node.at("pattern").get("Regex").value() == " {2,}" &&
         (node.at("content").value() == " " || node.at("content").value() == kSpaceMark);
}

/// Reads the steps in the order in which converters write them. Each step may be missing.
void read_normalizer(const Node& root, TokenizerSpec& spec) {
  const Node node = root.get("normalizer");
  const std::vector<Node> steps = sequence(node, "normalizers");
  std::size_t at = 0;
  const auto next_is = [&](std::string_view type) { return at < steps.size() && steps[at].type() == type; };
  if (next_is("NFC")) spec.nfc = true, ++at;
  if (next_is("Precompiled")) {
    const Node map = steps[at++].at("precompiled_charsmap");
    spec.character_map =
        std::make_shared<const CharacterMap>(CharacterMap::from_base64(map.string(), map.where()));
  }
  if (next_is("Strip")) {
    const Node strip = steps[at++];
    if (strip.flag("strip_left", false))
      strip.refuse("strip_left false", "Only white space at the end can be stripped.");
    spec.strip_right = strip.flag("strip_right", false);
  }
  if (at < steps.size() && replaces_space_runs(steps[at]))
    spec.space_run = steps[at++].at("content").string();
  const bool prepends = next_is("Prepend") && steps[at].at("prepend").value() == kSpaceMark;
  const std::size_t replaces = at + (prepends ? 1 : 0);
  if (replaces < steps.size() && is_replacement(steps[replaces], " ", kSpaceMark)) {
    spec.scheme = TokenizerSpec::Scheme::kSpaceMark;
    spec.prefix = prepends ? TokenizerSpec::Prefix::kNormalizer : TokenizerSpec::Prefix::kNever;
    at = replaces + 1;
  }
  if (at == steps.size()) return;
  node.refuse(
      "NFC, Precompiled, Strip on the right, Replace \" {2,}\", Prepend \"\u2581\" and Replace \" \" by "
      "\"\u2581\", "
      "in this order, or some of them",
      "Other normalizers are not supported; if there is a tokenizer.model, remove this file.");
}

SplitStep known_pattern(const Node& split) {
  const Node pattern = split.at("pattern");
  const std::string text = pattern.at("Regex").string();
  const std::optional<SplitStep> known = split_step_of(text);
  if (!known) {
    pattern.refuse("the pattern of GPT-2, Llama 3, Qwen 2 or DeepSeek",
                   "Other patterns would need their own scanner.");
  }
  if (split.at("behavior").value() != "Isolated" || split.flag("invert", false)) {
    split.refuse("behavior \"Isolated\" and invert false");
  }
  return *known;
}

void read_metaspace(const Node& node, TokenizerSpec& spec) {
  spec.scheme = TokenizerSpec::Scheme::kSpaceMark;
  spec.metaspace = true;
  if (node.at("replacement").value() != kSpaceMark) node.refuse("replacement \"\u2581\"");
  spec.words_begin_at_marks = node.flag("split", true);
  const Node scheme = node.get("prepend_scheme");
  if (scheme.is_null()) {  // the form of files before 2024
    spec.prefix =
        node.flag("add_prefix_space", true) ? TokenizerSpec::Prefix::kAlways : TokenizerSpec::Prefix::kNever;
  } else if (scheme.value() == "always") {
    spec.prefix = TokenizerSpec::Prefix::kAlways;
  } else if (scheme.value() == "first") {
    spec.prefix = TokenizerSpec::Prefix::kFirst;
  } else if (scheme.value() == "never") {
    spec.prefix = TokenizerSpec::Prefix::kNever;
  } else {
    scheme.refuse("\"always\", \"first\" or \"never\"");
  }
}

void read_pre_tokenizer(const Node& root, TokenizerSpec& spec) {
  const Node node = root.get("pre_tokenizer");
  const std::vector<Node> steps = sequence(node, "pretokenizers");
  if (spec.scheme == TokenizerSpec::Scheme::kSpaceMark) {
    for (const Node& step : steps) {
      // Gemma's form; the normalizer has replaced all spaces, so this never splits.
      if (step.type() == "Split" && step.at("pattern").get("String").value() == " ") continue;
      node.refuse("null with this normalizer", "This combination is not supported.");
    }
    return;
  }
  if (!steps.empty() && steps.size() <= 2 && steps.back().type() == "Metaspace") {
    spec.cut_at_white_space = steps.size() == 2 && steps[0].type() == "WhitespaceSplit";
    if (steps.size() == 2 && !spec.cut_at_white_space)
      node.refuse("Metaspace, alone or after WhitespaceSplit");
    return read_metaspace(steps.back(), spec);
  }
  if (!spec.unigram_scores.empty()) node.refuse("Metaspace", "Unigram models need their spaces marked.");
  if (steps.empty() || steps.back().type() != "ByteLevel") {
    node.refuse("ByteLevel, alone or at the end of a Sequence, or Metaspace",
                "Other pre-tokenisers are not supported with this normalizer.");
  }
  for (const Node& step : steps) {
    const std::string type = step.type();
    if (type == "Digits") {
      if (!step.flag("individual_digits", false)) step.refuse("individual_digits true");
      spec.steps.push_back(SplitStep::kDigits);
    } else if (type == "Split") {
      spec.steps.push_back(known_pattern(step));
    } else if (type == "ByteLevel" && &step == &steps.back()) {
      if (step.flag("add_prefix_space", true))
        step.refuse("add_prefix_space false", "A prefixed space is not supported.");
      if (step.flag("use_regex", true)) spec.steps.push_back(SplitStep::kGpt2);
    } else {
      step.refuse("Digits, Split, or ByteLevel as the last step", "Other pre-tokenisers are not supported.");
    }
  }
}

/// Reads from the decoder what happens to spaces at the beginning. All else in decoding follows from the
/// scheme, so other settings are refused.
void read_decoder(const Node& root, TokenizerSpec& spec) {
  const Node node = root.get("decoder");
  const std::vector<Node> steps = sequence(node, "decoders");
  if (spec.scheme == TokenizerSpec::Scheme::kByteLevel) {
    if (steps.size() > 1 || (steps.size() == 1 && steps[0].type() != "ByteLevel")) node.refuse("ByteLevel");
    return;
  }
  if (steps.size() == 1 && steps[0].type() == "Metaspace") {
    spec.first_token_without_spaces =
        steps[0].get("prepend_scheme").value() != "never" && steps[0].flag("add_prefix_space", true);
    return;
  }
  for (const Node& step : steps) {
    const std::string type = step.type();
    if (type == "ByteFallback" || type == "Fuse" || is_replacement(step, kSpaceMark, " ")) continue;
    if (type == "Strip" && step.at("content").value() == " " && step.at("start").value() == 1 &&
        step.at("stop").value() == 0) {
      spec.strip_first_space = true;
      continue;
    }
    step.refuse("Replace \"\u2581\" by \" \", ByteFallback, Fuse, or Strip of one space in front");
  }
}

void read_post_processor(const Node& root, TokenizerSpec& spec) {
  for (const Node& step : sequence(root.get("post_processor"), "processors")) {
    const std::string type = step.type();
    if (type == "ByteLevel") continue;  // affects only offsets
    if (type != "TemplateProcessing")
      step.refuse("TemplateProcessing or ByteLevel", "Other post-processors are not supported.");
    const Node single = step.at("single");
    const std::vector<Node> pieces = single.items();
    const auto is_text = [](const Node& piece) { return !piece.get("Sequence").is_null(); };
    if (pieces.size() == 1 && is_text(pieces[0])) continue;
    if (pieces.size() != 2 || is_text(pieces[0]) || !is_text(pieces[1])) {
      single.refuse("at most one special token, in front of the text");
    }
    const Node name = pieces[0].at("SpecialToken").at("id");
    const auto found = std::ranges::find(spec.tokens, name.string());
    if (found == spec.tokens.end()) name.refuse("a token of the vocabulary");
    spec.add_bos = true;
    if (!spec.ids.bos) spec.ids.bos = static_cast<Token>(found - spec.tokens.begin());
  }
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view file_name_for_errors,
                               const Ids& ids) {
  TokenizerSpec spec;
  spec.file = std::string(file_name_for_errors);
  spec.tokens_at = spec.file + ": /model/vocab";
  spec.merges_at = spec.file + ": /model/merges";
  spec.added_at = spec.file + ": /added_tokens";
  const Json json = parse_json(tokenizer_json, spec.file);
  const Node root(json, spec.file, "");
  read_model(root, spec);
  spec.ids = ids;
  if (!spec.ids.unk) spec.ids.unk = spec.unk_symbol;
  read_normalizer(root, spec);
  read_pre_tokenizer(root, spec);
  read_decoder(root, spec);
  read_post_processor(root, spec);
  if (spec.scheme == TokenizerSpec::Scheme::kByteLevel && spec.byte_fallback) {
    root.at("model").get("byte_fallback").refuse("false for byte-level BPE");
  }
  return build(std::move(spec));
}

}  // namespace speclab
