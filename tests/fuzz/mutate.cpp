#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

namespace speclab::fuzz {
namespace {

using Json = nlohmann::json;

/// Values at which readers are known to break.
Json extreme_value(Random& random) {
  static const std::vector<Json> values{0,
                                        1,
                                        -1,
                                        2,
                                        3,
                                        32,
                                        64,
                                        255,
                                        65'536,
                                        INT32_MAX,
                                        INT64_C(1) << 31,
                                        INT64_C(1) << 32,
                                        (INT64_C(1) << 61) + 1,
                                        INT64_C(1) << 62,
                                        INT64_MAX,
                                        INT64_MIN,
                                        UINT64_C(1) << 63,
                                        UINT64_MAX,
                                        0.5,
                                        -0.0,
                                        1e-320,
                                        1e38,
                                        1e39,
                                        1e308,
                                        "",
                                        "a",
                                        "\x7f\x1b[2J",
                                        "\xef\xbf\xbf",
                                        "\u2581",
                                        "<|im_start|>",
                                        nullptr,
                                        true,
                                        false,
                                        Json::array(),
                                        Json::object(),
                                        Json::array({Json::array(), 1}),
                                        Json{{"a", nullptr}}};
  return values[below(random, values.size())];
}

/// All values, but only some of a long list (a vocabulary); otherwise hardly any other value would change.
void collect(Json& value, Random& random, std::vector<Json*>& out) {
  constexpr std::size_t kMost = 4000, kLong = 24;
  if (out.size() >= kMost) return;
  out.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& item : value) {
    if (value.size() <= kLong || below(random, value.size()) < 4) collect(item, random, out);
  }
}

void change_leaf(Json& value, Random& random, const MutateBytes& bytes) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    bytes(text);
    value = text;
  } else if (value.is_number_integer()) {
    const std::uint64_t number = value.get<std::uint64_t>();
    const std::uint64_t choices[] = {number + 1, number - 1, number * 2, number / 2, number << 32, ~number};
    const std::uint64_t chosen = choices[below(random, 6)];
    value = below(random, 8) == 0 ? Json(static_cast<std::int64_t>(chosen)) : Json(chosen);
  } else {
    value = extreme_value(random);
  }
}

void change_children(Json& value, Random& random, const std::vector<Json*>& nodes, const MutateBytes& bytes) {
  const std::size_t at = value.empty() ? 0 : below(random, value.size());
  const Json other = *nodes[below(random, nodes.size())];  // a copy, because nodes may be inside value
  if (value.is_array()) {
    const auto place = value.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(random, 4)) {
      case 0:
        if (!value.empty()) value.erase(place);
        break;
      case 1:
        if (!value.empty()) value.push_back(value[at]);
        break;
      case 2: value.insert(place, below(random, 2) == 0 ? other : extreme_value(random)); break;
      default: std::shuffle(value.begin(), value.end(), random);
    }
    return;
  }
  if (value.empty()) {
    value["a"] = other;
    return;
  }
  auto place = value.begin();
  std::advance(place, static_cast<std::ptrdiff_t>(at));
  std::string key = place.key();
  switch (below(random, 4)) {
    case 0: value.erase(place); break;
    case 1: {  // another name, the same value
      const Json moved = *place;
      value.erase(place);
      bytes(key);
      value[key] = moved;
      break;
    }
    case 2:  // a second member with the same value
      value[key + "2"] = Json(*place);
      break;
    default: {
      const Json* object = nodes[below(random, nodes.size())];
      if (object->is_object() && !object->empty()) value[object->begin().key()] = other;
    }
  }
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void change(Json& json, Random& random, const MutateBytes& bytes) {
  std::vector<Json*> nodes;
  collect(json, random, nodes);
  Json& node = *nodes[below(random, nodes.size())];
  switch (below(random, 6)) {
    case 0: node = extreme_value(random); break;
    case 1: {
      const Json other = *nodes[below(random, nodes.size())];
      node = other;
      break;
    }
    case 2:
    case 3:
      if (node.is_structured()) return change_children(node, random, nodes, bytes);
      change_leaf(node, random, bytes);
      break;
    case 4: {
      const Json inner = node;
      node = below(random, 2) == 0 ? Json::array({inner}) : Json{{"a", inner}};
      break;
    }
    default:
      if (!node.is_structured()) change_leaf(node, random, bytes);
      else change_children(node, random, nodes, bytes);
  }
}

/// Repeats a member of the text, which a parsed value cannot hold twice.
void repeat_a_key(std::string& text, Random& random) {
  const std::size_t brace = text.find('{', below(random, text.size() + 1));
  if (brace == text.npos) return;
  const std::size_t quote = text.find('"', brace);
  const std::size_t end = quote == text.npos ? text.npos : text.find('"', quote + 1);
  if (end != text.npos) text.insert(brace + 1, text.substr(quote, end + 1 - quote) + ":0,");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

std::string mutate_lines(const std::string& text, Random& random, const MutateBytes& bytes) {
  std::vector<std::string> lines = lines_of(text);
  std::string& line = lines[below(random, lines.size())];
  switch (below(random, 6)) {
    case 0: lines.push_back(std::string(line)); break;
    case 1:
      if (lines.size() > 1)
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size())));
      break;
    default: line = mutate_json(line, random, bytes);
  }
  std::string out;
  for (const std::string& each : lines) out += each + "\n";
  out.pop_back();
  return out;
}

std::string mutate_draft(const std::string& input, Random& random, const MutateBytes& bytes) {
  const std::size_t zero = input.find('\0');
  if (zero == input.npos) return mutate_json(input, random, bytes);
  const std::string config = input.substr(0, zero), weights = input.substr(zero + 1);
  if (below(random, 2) == 0) return mutate_json(config, random, bytes) + '\0' + weights;
  return config + '\0' + mutate_safetensors(weights, random, bytes);
}

/// Changes one of the files in the input.
std::string mutate_record(const std::string& input, Random& random, const MutateBytes& bytes) {
  std::vector<std::string> files{""};
  for (const char c : input) {
    if (c == '\0') {
      files.emplace_back();
    } else {
      files.back() += c;
    }
  }
  std::string& file = files[below(random, 2) == 0 ? 0 : below(random, files.size())];
  file = mutate_lines(file, random, bytes);
  if (!file.ends_with('\n') && below(random, 8) != 0) file += '\n';  // otherwise the last line is ignored
  std::string out;
  for (const std::string& each : files) out += each + '\0';
  out.pop_back();
  return out;
}

}  // namespace

void mutate_plain(std::string& bytes, Random& random) {
  static constexpr char kBytes[] = {'\0', '\1', '\x7f', '\x80', '\xff', '0', '9', '"', '-', '[', '{', ' '};
  const std::size_t at = below(random, bytes.size() + 1);
  switch (below(random, 5)) {
    case 0: bytes.erase(at, 1 + below(random, 8)); return;
    case 1:
      bytes.insert(at, std::string(bytes, below(random, bytes.size() + 1), 1 + below(random, 8)));
      return;
    case 2: bytes.insert(at, 1, kBytes[below(random, sizeof kBytes)]); return;
    default:
      for (std::size_t i = 0, n = 1 + below(random, 3); i < n && !bytes.empty(); ++i) {
        char& byte = bytes[below(random, bytes.size())];
        byte = below(random, 2) == 0 ? kBytes[below(random, sizeof kBytes)]
                                     : static_cast<char>(byte ^ (1 << below(random, 8)));
      }
  }
}

std::string mutate_json(const std::string& text, Random& random, const MutateBytes& bytes) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    std::string out = text;
    bytes(out);
    return out;
  }
  for (std::size_t i = 0, n = 1 + below(random, 3); i < n; ++i) change(json, random, bytes);
  std::string out = dump(json);
  if (below(random, 50) == 0) repeat_a_key(out, random);
  if (below(random, 50) == 0) out = std::string(below(random, 300), '[') + out;
  return out;
}

std::string mutate_safetensors(const std::string& file, Random& random, const MutateBytes& bytes) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) std::memcpy(&length, file.data(), sizeof length);
  Json header = Json::object();
  std::string data;
  if (file.size() >= sizeof length && length <= file.size() - sizeof length) {
    header = Json::parse(file.substr(sizeof length, length), nullptr, false);
    data = file.substr(sizeof length + length);
  }
  if (!header.is_object()) header = Json::object();
  if (header.empty()) header["a"] = {{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}};

  switch (below(random, 6)) {
    case 0: {  // one more tensor, a copy under another name
      const auto from = std::next(header.begin(), static_cast<std::ptrdiff_t>(below(random, header.size())));
      std::string name = from.key();
      bytes(name);
      const Json copy = *from;
      header[name] = copy;
      break;
    }
    case 1: {
      const char* dtypes[] = {"F32", "F16", "BF16",    "I32", "BOOL", "U8",
                              "F64", "I64", "F8_E4M3", "C64", "F4",   ""};
      auto entry = std::next(header.begin(), static_cast<std::ptrdiff_t>(below(random, header.size())));
      if (entry->is_object()) (*entry)["dtype"] = dtypes[below(random, 12)];
      break;
    }
    case 2: bytes(data); break;
    default: header = Json::parse(mutate_json(dump(header), random, bytes), nullptr, false);
  }
  // Most of the time, offsets are made contiguous and the data complete, because otherwise nothing would
  // pass.
  if (header.is_object() && below(random, 4) != 0) {
    std::uint64_t at = 0;
    for (auto& [name, entry] : header.items()) {
      if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array() ||
          name == "__metadata__")
        continue;
      const std::string dtype =
          entry.contains("dtype") && entry["dtype"].is_string() ? entry["dtype"].get<std::string>() : "";
      std::uint64_t size = dtype == "F32" || dtype == "I32"    ? 4
                           : dtype == "F16" || dtype == "BF16" ? 2
                           : dtype.ends_with("64")             ? 8
                                                               : 1;
      for (const Json& dimension : entry["shape"]) {
        if (dimension.is_number_unsigned())
          size *= dimension.get<std::uint64_t>();  // may overflow, as in a careless reader
      }
      entry["data_offsets"] = {at, at + size};
      at += size;
    }
    constexpr std::uint64_t kMost = 1 << 15;
    if (at <= kMost && below(random, 8) != 0) data.resize(at);
  }
  std::string text = header.is_discarded() ? "{" : dump(header);
  if (below(random, 2) == 0) text.resize((text.size() + 7) / 8 * 8, ' ');
  length = text.size();
  if (below(random, 30) == 0) length = extreme_value(random) == 0 ? 0 : random() >> below(random, 64);
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text + data;
}

std::string mutate(std::string_view entry_point, std::string input, Random& random,
                   const MutateBytes& bytes) {
  if (entry_point == "safetensors") return mutate_safetensors(input, random, bytes);
  if (entry_point == "gguf") return mutate_gguf(input, random, bytes);
  if (entry_point == "draft") return mutate_draft(input, random, bytes);
  if (entry_point == "prompts") return mutate_lines(input, random, bytes);
  if (entry_point == "datastore" || entry_point == "ngram_model")
    return mutate_token_file(input, random, bytes);
  if (entry_point == "sentencepiece") return mutate_sentencepiece(input, random, bytes);
  if (entry_point == "record") return mutate_record(input, random, bytes);
  if (entry_point == "chat_template") {
    bytes(input);
    return input;
  }
  return mutate_json(input, random, bytes);
}

}  // namespace speclab::fuzz
