#include "core/base/error.h"

namespace speclab {
namespace {

std::string sentence(const Error::Text& text) {
  std::string out = text.what;
  if (!text.got.empty()) out += ": got " + text.got;
  if (!text.expected.empty()) out += (text.got.empty() ? ": expected " : ", expected ") + text.expected;
  if (!text.advice.empty()) out += ". " + text.advice;
  return out;
}

}  // namespace

Error::Error(Text text) : std::runtime_error(sentence(text)), text_(std::move(text)) {}

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw Bug(fmt::format("{}:{}: {} is false: {}", file, line, condition, message));
}

}  // namespace speclab
