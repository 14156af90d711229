// Writes the seeds of the fuzzers: fuzz_corpus FOLDER makes FOLDER/<entry point>/<name>. Names that begin
// with "good" are accepted by their readers, which a test checks; the others are refused.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/model/text/sentencepiece_model.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/ngrams/ngram_file.h"
#include "tests/model/text/character_maps.h"
#include "tests/model/files/gguf_files.h"

namespace speclab::fixtures {
namespace {

std::filesystem::path root;

void seed(const char* entry_point, const char* name, const std::string& bytes) {
  std::filesystem::create_directories(root / entry_point);
  write_file(root / entry_point / name, bytes);
}

Shape seed_shape() {
  Shape shape = tiny_shape();
  shape.hidden = shape.embedding_dim = 4, shape.heads = 2, shape.kv_heads = 1, shape.head_dim = 2,
  shape.ffn = 4;
  shape.layers = 1, shape.vocab = 8;
  return shape;
}

Json entry(const char* dtype, Json shape, Json offsets) {
  return {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", std::move(offsets)}};
}

void safetensors() {
  seed("safetensors", "good_two",
       safetensors_file({{"b", "F32", {1, 2}, "12345678"}, {"a", "BF16", {2}, "abcd"}}));
  seed("safetensors", "good_types",
       safetensors_file({{"a", "I64", {1}, "12345678"},
                         {"b", "F8_E4M3", {3}, "123"},
                         {"c", "BOOL", {2, 1, 1, 1, 1}, "ab"}}));
  seed("safetensors", "good_empty", safetensors_file({{"a", entry("F32", {0, 4}, {0, 0})}}, ""));
  seed("safetensors", "bad_overlap",
       safetensors_file({{"a", entry("U8", {4}, {0, 4})}, {"b", entry("U8", {4}, {2, 6})}}, "123456"));
}

std::string gguf_model(const Shape& shape, const std::string& dtype) {
  return gguf_writer(random_llama(shape, 1), dtype).file();
}

void gguf() {
  using W = GgufWriter;
  W keys;
  keys.alignment = 64;
  keys.add("general.alignment", 64u);
  keys.add("u8", W::kU8, W::number(std::uint8_t{200}));
  keys.add("bool", W::kBool, "\1");
  keys.add("text", "h\xc3\xa9");
  keys.add("i64", W::kI64, W::number(-(std::int64_t{1} << 40)));
  keys.add("strings", W::kArray, W::strings({"a", "", "bc"}));
  keys.add("reals", W::kArray, W::array(W::kF32, 1, W::number(.5f)));
  keys.add("nested", W::kArray, W::array(W::kArray, 2, W::strings({"x"}) + W::array(W::kU8, 0, "")));
  keys.tensors = {{"a", {3}, 0, std::string(12, 'a')},
                  {"b", {32, 2}, 8, std::string(68, 'b')},
                  {"c", {256, 1, 1, 1}, 12, std::string(144, 'c')}};
  seed("gguf", "bad_model_keys", keys.file());  // a valid file that is no model
  seed("gguf", "good_model", gguf_model(seed_shape(), "F16"));
  Shape text = seed_shape();
  text.vocab = kByteVocab;
  text.tied_head = true;
  W tokenizer = gguf_writer(random_llama(text, 1), "BF16");
  add_byte_tokenizer(tokenizer);
  seed("gguf", "good_tokenizer", tokenizer.file());
}

/// The keys that converters write for SentencePiece, with a model of the same number of rows.
std::string gguf_sentencepiece(const SentencePieceSpec& spec) {
  using W = GgufWriter;
  Shape shape = seed_shape();
  shape.hidden = shape.embedding_dim = shape.heads = 2, shape.head_dim = 2, shape.ffn = 2;
  shape.vocab = static_cast<int>(spec.pieces.size());
  shape.tied_head = true;
  W file = gguf_writer(random_llama(shape, 1), "BF16");
  std::vector<std::string> texts;
  std::string scores, types;
  for (const SentencePieceSpec::Piece& piece : spec.pieces) {
    texts.push_back(piece.text);
    append(scores, piece.score);
    append(types, std::int32_t{piece.type});
  }
  file.add("tokenizer.ggml.model", spec.kind == SentencePieceSpec::Kind::kBpe ? "llama" : "t5");
  file.add("tokenizer.ggml.tokens", W::kArray, W::strings(texts));
  file.add("tokenizer.ggml.scores", W::kArray, W::array(W::kF32, texts.size(), scores));
  file.add("tokenizer.ggml.token_type", W::kArray, W::array(W::kI32, texts.size(), types));
  file.add("tokenizer.ggml.bos_token_id", 1u);
  file.add("tokenizer.ggml.add_space_prefix", W::kBool, std::string(1, spec.add_dummy_prefix));
  file.add("tokenizer.ggml.remove_extra_whitespaces", W::kBool,
           std::string(1, spec.remove_extra_whitespaces));
  if (!spec.character_map.empty())
    file.add("tokenizer.ggml.precompiled_charsmap", W::kArray,
             W::array(W::kU8, spec.character_map.size(), spec.character_map));
  return file.file();
}

Json byte_tokenizer(Json normalizer, Json pre_tokenizer, Json merges) {
  Json vocab = Json::object();
  const std::vector<std::string> tokens = byte_tokenizer_tokens();
  int id = 0;
  for (; id < 256; ++id) vocab[tokens[static_cast<std::size_t>(id)]] = id;
  for (const Json& merge : merges) vocab[merge[0].get<std::string>() + merge[1].get<std::string>()] = id++;
  const Json added = Json::array({{{"id", id}, {"content", "<|im_end|>"}, {"special", true}},
                                  {{"id", id + 1}, {"content", "word"}, {"special", false}}});
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  if (pre_tokenizer.is_null()) pre_tokenizer = byte_level;
  return {{"added_tokens", added},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"ignore_merges", false}}}};
}

void tokenizer() {
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json merges = Json::parse(R"([["t", "h"], ["th", "e"], ["\u0120", "the"]])");
  seed("tokenizer", "good_gpt2", byte_tokenizer(nullptr, nullptr, merges).dump());
  seed("tokenizer", "good_digits",
       byte_tokenizer({{"type", "NFC"}},
                      {{"type", "Sequence"},
                       {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}},
                      merges)
           .dump());
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"\u2581", 3}, {"t", 4}, {"h", 5}, {"th", 6}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kHex = "0123456789ABCDEF";
    vocab[std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">"] = 7 + byte;
  }
  const Json mark = "\u2581",
             replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}};
  const Json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
             text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  seed("tokenizer", "good_llama2",
       Json{{"added_tokens",
             {{{"id", 1}, {"content", "<s>"}, {"special", true}},
              {{"id", 2}, {"content", "</s>"}, {"special", true}}}},
            {"normalizer",
             {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, replace}}}},
            {"pre_tokenizer", nullptr},
            {"post_processor", {{"type", "TemplateProcessing"}, {"single", {special, text}}}},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"vocab", vocab},
              {"merges", {"t h"}},
              {"unk_token", "<unk>"},
              {"byte_fallback", true},
              {"fuse_unk", true}}}}
           .dump());
  const Json normalizer = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Precompiled"},
         {"precompiled_charsmap",
          base64(character_map({{"\xef\xac\x81", "fi"}, {"e\xcc\x81", "e"}, {"\xe2\x80\x8b", ""}}))}},
        {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}},
        {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", mark}}}}};
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", "always"}, {"split", true}};
  seed("tokenizer", "good_character_map",
       Json{{"added_tokens",
             {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
              {{"id", 5},
               {"content", "token"},
               {"special", false},
               {"single_word", true},
               {"lstrip", true},
               {"normalized", true}}}},
            {"normalizer", normalizer},
            {"pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
            {"decoder", metaspace},
            {"model",
             {{"type", "Unigram"},
              {"unk_id", 0},
              {"vocab",
               Json::array({Json::array({"<unk>", 0.0}), Json::array({mark, -1.0}), Json::array({"e", -2.0}),
                            Json::array({"co", -3.0}), Json::array({"\u2581d", -2.5})})}}}}
           .dump());
  seed("tokenizer", "bad_unigram",
       R"({"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5]], "unk_id": 0}})");
}

SentencePieceSpec sentencepiece_model(SentencePieceSpec::Kind kind, bool bytes) {
  SentencePieceSpec spec;
  spec.kind = kind;
  const auto add = [&](const char* text, float score, int type) {
    spec.pieces.push_back({text, score, type});
  };
  add("<unk>", 0, SentencePieceSpec::kUnknown), add("<s>", 0, SentencePieceSpec::kControl),
      add("</s>", 0, SentencePieceSpec::kControl);
  for (int byte = 0; bytes && byte < 256; ++byte)
    add(fmt::format("<0x{:02X}>", byte).c_str(), 0, SentencePieceSpec::kByte);
  const char* texts[] = {"\u2581", "e", "c", "o", "d", "co", "de", "\u2581t", "ing", "\u2581code"};
  for (int i = 0; i < 10; ++i) add(texts[i], -.5f * static_cast<float>(i), SentencePieceSpec::kNormal);
  add("<user>", 0, SentencePieceSpec::kUserDefined), add("ding", -1, SentencePieceSpec::kUnused);
  return spec;
}

void sentencepiece() {
  using Kind = SentencePieceSpec::Kind;
  seed("sentencepiece", "good_bpe", write_sentencepiece_file(sentencepiece_model(Kind::kBpe, false)));
  seed("sentencepiece", "good_bytes", write_sentencepiece_file(sentencepiece_model(Kind::kBpe, true)));
  SentencePieceSpec spec = sentencepiece_model(Kind::kUnigram, false);
  spec.remove_extra_whitespaces = true;
  spec.character_map =
      character_map({{"\xef\xac\x81", "fi"}, {"e\xcc\x81", "e"}, {"\xc3\xa9", "e"}, {"\xe2\x80\x8b", " "}});
  seed("sentencepiece", "good_unigram", write_sentencepiece_file(spec));
  seed("gguf", "good_sentencepiece", gguf_sentencepiece(sentencepiece_model(Kind::kBpe, false)));
  spec.pieces[1].text = "<unk>";
  seed("sentencepiece", "bad_twice", write_sentencepiece_file(spec));
}

void chat_template() {
  seed("chat_template", "good_chatml", kChatMl);
  seed("chat_template", "good_system",
       "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are \\\"it\\\".<|im_end|>\\n' "
       "}}{% endif %}" +
           std::string(kChatMl));
  seed("chat_template", "good_llama3",
       "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
       "'<|end_header_id|>\\n\\n'+ "
       "message['content'] | trim + '<|eot_id|>' %}{{ bos_token if loop.first }}{{ content }}{% endfor %}");
  seed("chat_template", "good_qwen3",
       "{% set ns = namespace(last_query_index=0) %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
       "'<|im_end|>\\n' }}"
       "{{ '<think>' }}{% if enable_thinking %}{% endif %}");
  seed("chat_template", "good_granite",
       "{% set s = \"Knowledge Cutoff Date: April\" + strftime_now('%B') + \".\" %}"
       "{{ system_message + \" You are a helpful AI assistant.\" }}"
       "{{ '<|start_of_role|>user<|end_of_role|>' + m['content'] + '<|end_of_text|>\\n' }}");
  seed("chat_template", "bad_llama",
       "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}");
}

void experiment() {
  const Json prompts = {
      {"inline",
       {"What is a draft?",
        {{"id", "p"}, {"category", "c"}, {"turns", {"a", "b"}}, {"options", {{"max_tokens", 4}}}}}}};
  seed("experiment", "good_small",
       Json{{"target", "models/m"},
            {"prompts", {{"inline", {"Hello"}}}},
            {"cases", {{{"strategy", "autoregressive"}}}}}
           .dump());
  seed("experiment", "good_sweep",
       Json{{"name", "n"},
            {"target", {{"model", "models/m"}}},
            {"drafts",
             {{"small", {{"model", "models/d"}}},
              {"half", {{"layers", {{"keep", 2}}}}},
              {"two", {{"layers", {0, 5}}}}}},
            {"prompts", prompts},
            {"seeds", {1, 2}},
            {"repeats", 2},
            {"options", {{"temperature", {0, 1}}, {"max_tokens", 16}}},
            {"calibration", {{"rows", 8}}},
            {"cases",
             {{{"strategy", "autoregressive"}},
              {{"strategy", "speculative_sampling"}, {"draft", {"small", "half"}}, {"gamma", {2, 4}}},
              {{"strategy", "prompt_lookup"}}}}}
           .dump());
  seed("experiment", "good_simulated",
       Json{{"target", "models/m"},
            {"prompts", {{"inline", {"Hello"}}}},
            {"cases",
             {{{"strategy", "autoregressive"}},
              {{"strategy", "simulated"}, {"gamma", 3}, {"alpha_at", {0.9, 0.5, 0.25}}},
              {{"strategy", "simulated"}, {"gamma", 2}, {"trace", {2, 0, 1}}}}}}
           .dump());
  seed(
      "experiment", "bad_key",
      R"({"target": "m", "prompts": {"inline": ["a"]}, "cases": [{"strategy": "autoregressive", "gama": 4}]})");
}

void prompts() {
  seed(
      "prompts", "good_lines",
      "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"One.\", \"Two.\"]}\n\n\"just a text\"\n"
      "{\"id\": \"x\", \"turns\": [\"caf\xc3\xa9\"], \"options\": {\"gamma\": 3}, \"reference\": []}\n");
  seed("prompts", "bad_ids", "{\"id\": 1, \"turns\": [\"a\"]}\n{\"id\": \"1\", \"turns\": [\"b\"]}\n");
}

void draft() {
  Shape shape = tiny_draft_shape(seed_shape());
  shape.hidden = 4, shape.heads = 2, shape.ffn = 4, shape.head_dim = 2;
  const TinyModel model = random_llama(shape, 2);
  seed("draft", "good_reduced",
       huggingface_config(shape).dump() + '\0' + safetensors_file(huggingface_tensors(model)));
  TinyModel table = markov_table(3, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  seed("draft", "good_table",
       huggingface_config(table.config).dump() + '\0' + safetensors_file(huggingface_tensors(table)));
}

void token_files() {
  const std::vector<std::vector<Token>> documents{{1, 2, 3, 1, 2, 4, 1, 2, 3}, {3, 1, 2}, {7}};
  for (const char* folder : {"datastore", "ngram_model"}) std::filesystem::create_directories(root / folder);
  Datastore::Builder store(8, std::string(64, 'a'));
  for (const auto& document : documents) store.add(document);
  store.write(root / "datastore/good_three");
  NgramFile::Builder ngrams(8, "");
  for (const auto& document : documents) ngrams.add(document);
  ngrams.write(root / "ngram_model/good_trigrams", 3);
  ngrams.write(root / "ngram_model/good_unigrams", 1);
  ngrams.write(root / "datastore/bad_kind", 2);
  store.write(root / "ngram_model/bad_kind");
}

/// Hash of ids or of hashes of rows, which have 32 bits each.
std::string hash_of(const std::vector<std::int32_t>& numbers) {
  return sha256_hex(std::as_bytes(std::span(numbers)));
}

Json line_of(int repeat) {
  const Json work = {{"calls", 2},   {"rows", 7},           {"logit_rows", 3}, {"keys", 40},
                     {"flops", 1e6}, {"weight_bytes", 2e5}, {"kv_bytes", 1e4}};
  const Json passes = {{"target_prefill", work}, {"target", work}, {"draft_prefill", work}, {"draft", work}};
  const Json first = {{"id", 5},        {"p", .5},          {"q", .25},         {"rank", 0},
                      {"tested", true}, {"accepted", true}, {"confidence", .5}, {"expected", .75}},
             second = {{"id", 6},        {"p", .125},         {"q", .5},         {"rank", 3},
                       {"tested", true}, {"accepted", false}, {"expected", .25}, {"distance", .1}},
             sibling = {{"id", 7},         {"p", -1},           {"q", -1},    {"rank", -1},
                        {"tested", false}, {"accepted", false}, {"parent", 1}};
  const Json step = {{"source", "draft"},
                     {"drafted", 2},
                     {"accepted", 1},
                     {"emitted", 2},
                     {"ended_by", "rejection"},
                     {"nodes", 3},
                     {"rows", 3},
                     {"draft_calls", 2},
                     {"ns", {10, 20, 3, 1}},
                     {"tokens", {first, second}}};
  const Json tree = {{"source", "lookup"},  {"drafted", 3},
                     {"accepted", 0},       {"emitted", 1},
                     {"ended_by", "eos"},   {"nodes", 4},
                     {"rows", 4},           {"draft_calls", 0},
                     {"ns", {1, 20, 3, 1}}, {"tokens", {first, second, sibling}},
                     {"pool", 9},           {"probes", {{1, 0, -1}, {2, 1, 4}}}};
  const auto turn = [&](int tokens, int steps) {
    return Json{{"context", {1, 2, 3, 1, 2, 3}},
                {"context_length", 6},
                {"tokens", tokens},
                {"steps", steps},
                {"prefill_ns", 100},
                {"draft_prefill_ns", 10},
                {"decode_ns", 60},
                {"cpu_ns", 110},
                {"finish", "eos"},
                {"work", passes}};
  };
  Json last = turn(2, 1);
  last["device"] = {{"planned_steps", 1}, {"round_trips", 1}, {"stamped_ns", 50}};
  Json line = {{"schema_version", 1},
               {"case", "drafting"},
               {"prompt", "p"},
               {"category", "chat"},
               {"seed", 1},
               {"repeat", repeat},
               {"order", repeat},
               {"tokens", {4, 5, 9, 4, 2}},
               {"row_hashes", {1, 2, 3, 4, 5}},
               {"output_hash", hash_of({4, 5, 9, 4, 2})},
               {"logits_hash", hash_of({1, 2, 3, 4, 5})},
               {"turns", {turn(3, 1), last}},
               {"steps", {step, tree}},
               {"matches_reference", true},
               {"first_divergence", nullptr},
               {"gpu", {{"joules", .5}}}};
  if (repeat == 0)
    line["pieces"] = {"a", "b", "c", "d", "e"}, line["text"] =
                                                    "abc\xe2\x90\x9e"
                                                    "de";
  return line;
}

void record() {
  const std::string failed =
      Json{{"schema_version", 1}, {"case", "drafting"}, {"prompt", "p"}, {"category", "chat"},
           {"seed", 2},           {"repeat", 0},        {"order", 2},    {"error", "NaN logits"}}
          .dump();
  const std::string lines =
      line_of(0).dump() + "\n" + line_of(1).dump() + "\n" + failed + "\n{\"schema_version\": 1, \"ca";
  const Json costs = {{"drafted", 2},
                      {"accepted", 1},
                      {"ns", {{"draft", 10}, {"target", 20}, {"accept", 3}, {"other", 1}, {"step", 34}}}};
  const Json round = {{"round", 0},
                      {"shard", {1, 1}},
                      {"context_length", 5},
                      {"t_n_ns", {{"1", 100}, {"2", 105.5}}},
                      {"drafts", {{"d", {{"1", 9}}}}},
                      {"cases", {{"drafting", {costs, costs}}, {"autoregressive", nullptr}}}};
  const Json teacher = {{"kind", "alpha"}, {"case", "drafting"}, {"prompt", "p"},
                        {"seed", 1},       {"sum", 3.5},         {"positions", 5}};
  seed("record", "good_lines", lines + '\0' + round.dump() + "\n" + '\0' + teacher.dump() + "\n");
  seed("record", "good_nothing", std::string(2, '\0'));
  Json damaged = line_of(0);
  damaged.erase("steps");
  seed("record", "bad_line", damaged.dump() + "\n");
  // Errors that were found by reading the code.
  const auto bad = [](const char* name, const Json& patch) {
    seed("record", name, line_of(0).patch(patch).dump() + "\n");
  };
  bad("bad_hashes", {{{"op", "remove"}, {"path", "/row_hashes/4"}}});
  bad("bad_turns", {{{"op", "replace"}, {"path", "/turns/1/tokens"}, {"value", UINT64_MAX}}});
  bad("bad_emitted", {{{"op", "replace"}, {"path", "/steps/0/emitted"}, {"value", -5}}});
  bad("bad_number", {{{"op", "replace"}, {"path", "/turns/0/decode_ns"}, {"value", 1e300}}});
  const auto calibrated = [&](const char* name, const Json& patch) {
    seed("record", name, std::string(1, '\0') + round.patch(patch).dump() + "\n");
  };
  calibrated("bad_rows", {{{"op", "add"}, {"path", "/t_n_ns/x"}, {"value", 1}}});
  calibrated("bad_one_row", {{{"op", "remove"}, {"path", "/t_n_ns/1"}}});
}

}  // namespace
}  // namespace speclab::fixtures

int main(int argc, char** argv) {
  using namespace speclab::fixtures;
  if (argc != 2) return 2;
  root = argv[1];
  safetensors(), gguf(), tokenizer(), sentencepiece(), chat_template(), experiment(), prompts(), draft(),
      token_files(), record();
}
