#include "core/base/error.h"

#include "core/base/utf8.h"

namespace speclab {
namespace {

std::string sentence(const Error::Text& text) {
  std::string out = text.what;
  if (!text.got.empty()) out += ": got " + text.got;
  if (!text.expected.empty()) out += (text.got.empty() ? ": expected " : ", expected ") + text.expected;
  if (!text.advice.empty()) out += ". " + text.advice;
  return out;
}

/// Makes all four parts safe to print. Names and values may come from foreign files. Cleaned text cannot move
/// the cursor of a terminal or break a JSON record. Each part has at most about 4000 bytes.
Error::Text clean(Error::Text text) {
  constexpr std::size_t kMost = 4000;
  for (std::string* part : {&text.what, &text.got, &text.expected, &text.advice})
    *part = printable(*part, kMost);
  return text;
}

}  // namespace

// The base class is initialised before text_. The argument of the base class also assigns the cleaned text to
// `text`, so text_ then takes the cleaned text.
Error::Error(Text text)
    : std::runtime_error(sentence(text = clean(std::move(text)))), text_(std::move(text)) {}

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw Bug(fmt::format("{}:{}: {} is false: {}", file, line, condition, message));
}

}  // namespace speclab
