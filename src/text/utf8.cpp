#include "src/text/utf8.hpp"

#include "src/text/tokenizer.hpp"

namespace ingot {

std::string_view mend_utf8(std::string_view text, std::string& storage) {
  std::size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return text;
  storage.clear();
  storage.reserve(text.size() + text.size() / 8);
  while (true) {
    storage.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return storage;
    storage.append(kReplacementCharacter);
    text.remove_prefix(next_utf8(text, 0).bytes);
    valid = valid_utf8_prefix(text);
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const std::size_t valid = valid_utf8_prefix(std::string_view(held_).substr(at));
    out.append(held_, at, valid);
    at += valid;
    if (at == held_.size()) break;
    const Utf8Part part = next_utf8(held_, at);
    if (part.kind == Utf8Part::Kind::cut) break;
    out.append(kReplacementCharacter);
    at += part.bytes;
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !held_.empty();
  held_.clear();
  return cut ? std::string(kReplacementCharacter) : std::string();
}

std::string_view cut_utf8(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

}  // namespace ingot
