// Any bytes as the model's output: the same result however they are cut, nothing lost but the tags
// of understood calls, and deltas in UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/text/stream_parser.hpp"
#include "src/text/utf8.hpp"

namespace {

struct Joined {
  std::string reasoning, content, calls, error;
  bool operator==(const Joined&) const = default;
};

void take(Joined& joined, const ingot::OutputDelta& delta) {
  if (!ingot::is_utf8(delta.reasoning) || !ingot::is_utf8(delta.content)) std::abort();
  joined.reasoning += delta.reasoning;
  joined.content += delta.content;
  for (const auto& call : delta.tool_calls) {
    if (!ingot::is_utf8(call.name) || !ingot::is_utf8(call.arguments)) std::abort();
    joined.calls += call.name + "(" + call.arguments + ")";
  }
}

Joined parse(std::string_view text, bool thinking, std::size_t step) {
  ingot::StreamParser parser(thinking);
  Joined joined;
  for (std::size_t at = 0; at < text.size(); at += step)
    take(joined, parser.push(text.substr(at, step)));
  take(joined, parser.finish());
  joined.error = parser.error();
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool thinking = (data[0] & 1) != 0;
  const std::size_t step = 1 + (data[0] >> 1) % 40;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Joined whole = parse(text, thinking, size);
  if (!(parse(text, thinking, step) == whole)) std::abort();
  if (!(parse(text, thinking, 1) == whole)) std::abort();
  std::string mended;
  if (whole.calls.empty() && whole.error.empty() && !thinking &&
      text.find("｜DSML｜") == text.npos && whole.content != ingot::mend_utf8(text, mended)) {
    std::abort();
  }
  return 0;
}
