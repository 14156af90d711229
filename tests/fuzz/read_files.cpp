#include "core/model/text/chat_template.h"
#include "core/model/files/safetensors.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {
namespace {

void use(const ChatTemplate& chat) {
  const std::vector<Message> messages{
      {"system", "S"}, {"user", "U<|im_end|>"}, {"assistant", "A"}, {"user", ""}};
  for (std::size_t from = 0; from < 2; ++from) {
    std::string text;
    if (!accepted([&] { text = chat.render(std::span(messages).subspan(from), true); })) continue;
    require(text.find('U') != text.npos && text.find('A') != text.npos, "a conversation that lost a turn");
  }
}

}  // namespace

bool read_safetensors_file(std::string_view input) {
  return accepted([&] { touch_all(read_safetensors(bytes_of(input), "f")); });
}

bool read_chat_template(std::string_view input) {
  return accepted([&] { use(ChatTemplate::from_source(input, "f")); });
}

}  // namespace speclab::fuzz
