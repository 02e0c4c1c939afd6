#include "src/chat/key_decoder.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr char kEscape = '\x1b';
/// A sequence of more bytes is no key.
constexpr std::size_t kMostSequenceBytes = 32;

struct Sequence {
  std::string_view bytes;  ///< behind the Escape
  Key key;
};

/// Source: xterm's control sequences, "PC-Style Function Keys" and "VT220-Style Function Keys";
/// 13;2u and 13;3u are the kitty protocol's Shift- and Alt-Enter.
constexpr Sequence kSequences[] = {
    {"[A", Key::up},
    {"[B", Key::down},
    {"[C", Key::right},
    {"[D", Key::left},
    {"[H", Key::line_start},
    {"[F", Key::line_end},
    {"OA", Key::up},
    {"OB", Key::down},
    {"OC", Key::right},
    {"OD", Key::left},
    {"OH", Key::line_start},
    {"OF", Key::line_end},
    {"OM", Key::enter},
    {"[1~", Key::line_start},
    {"[7~", Key::line_start},
    {"[4~", Key::line_end},
    {"[8~", Key::line_end},
    {"[3~", Key::erase_at},
    {"[1;5C", Key::word_right},
    {"[1;3C", Key::word_right},
    {"[1;5D", Key::word_left},
    {"[1;3D", Key::word_left},
    {"[1;5H", Key::text_start},
    {"[1;5F", Key::text_end},
    {"[3;5~", Key::kill_word_after},
    {"[13;2u", Key::newline},
    {"[13;3u", Key::newline},
    {"b", Key::word_left},
    {"f", Key::word_right},
    {"d", Key::kill_word_after},
    {"\x7f", Key::kill_word_before},
    {"\x08", Key::kill_word_before},
    {"\r", Key::newline},
    {"\n", Key::newline},
    {"<", Key::text_start},
    {">", Key::text_end},
};

/// Ctrl-A … Ctrl-Z and the two beside them, from 0.
constexpr Key control_key(unsigned char byte) {
  switch (byte) {
    case 0x01:
      return Key::line_start;
    case 0x02:
      return Key::left;
    case 0x03:
      return Key::interrupt;
    case 0x04:
      return Key::end_of_input;
    case 0x05:
      return Key::line_end;
    case 0x06:
      return Key::right;
    case 0x07:
      return Key::escape;
    case 0x08:
    case 0x7F:
      return Key::backspace;
    case 0x09:
      return Key::tab;
    case 0x0A:
    case 0x0D:
      return Key::enter;
    case 0x0B:
      return Key::kill_to_line_end;
    case 0x0C:
      return Key::clear_screen;
    case 0x0E:
      return Key::next_entry;
    case 0x10:
      return Key::previous_entry;
    case 0x12:
      return Key::search;
    case 0x14:
      return Key::fold;
    case 0x15:
      return Key::kill_to_line_start;
    case 0x17:
      return Key::kill_word_before;
    case 0x19:
      return Key::yank;
    case 0x1A:
      return Key::suspend;
    default:
      return Key::unknown;
  }
}

bool is_control(char byte) {
  const auto c = static_cast<unsigned char>(byte);
  return c < 0x20 || c == 0x7F;
}

}  // namespace

std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  return out;
}

void KeyDecoder::drop_taken() {
  if (at_ < pending_.size() && at_ < pending_.size() / 2) return;
  pending_.erase(0, at_);
  at_ = 0;
}

std::optional<KeyEvent> KeyDecoder::take_paste() {
  const std::string_view left = rest();
  const std::size_t end = left.find(kPasteEnd);
  const bool whole = end != std::string_view::npos;
  // The end mark may be cut.
  const std::size_t sure = whole ? end : left.size() - std::min(left.size(), kPasteEnd.size() - 1);
  const std::size_t room = kMostPasteBytes - paste_.size();
  paste_ += left.substr(0, std::min(sure, room));
  at_ += whole ? end + kPasteEnd.size() : sure;
  drop_taken();
  if (!whole) return std::nullopt;
  in_paste_ = false;
  return KeyEvent{Key::paste, with_plain_line_ends(std::exchange(paste_, {}))};
}

void KeyDecoder::abandon_paste() {
  in_paste_ = false;
  paste_.clear();
  pending_.clear();
  at_ = 0;
}

std::optional<KeyEvent> KeyDecoder::take_escape(bool no_more) {
  const std::string_view after = rest().substr(1);
  if (after.starts_with(kPasteBegin.substr(1))) {
    at_ += kPasteBegin.size();
    in_paste_ = true;
    return take_paste();
  }
  for (const Sequence& sequence : kSequences) {
    if (!after.starts_with(sequence.bytes)) continue;
    at_ += 1 + sequence.bytes.size();
    return KeyEvent{sequence.key};
  }
  if (after.empty()) {
    if (!no_more) return std::nullopt;
    ++at_;
    return KeyEvent{Key::escape};
  }
  if (after[0] != '[' && after[0] != 'O') {
    // Alt with something else, or Escape and a key that was pressed behind it.
    ++at_;
    return KeyEvent{Key::escape};
  }
  // An unknown sequence: parameters, then one final byte.
  std::size_t end = 1;
  while (end < after.size() && end < kMostSequenceBytes && after[end] >= 0x20 && after[end] < 0x40)
    ++end;
  if (end == after.size() && !no_more) return std::nullopt;
  const bool has_final = end < after.size() && after[end] >= 0x40 && after[end] < 0x7F;
  at_ += 1 + end + (has_final ? 1 : 0);
  return KeyEvent{Key::unknown};
}

std::optional<KeyEvent> KeyDecoder::take_control(unsigned char byte, bool no_more) {
  if (byte != 0x18) {  // Ctrl-X begins a sequence of two
    ++at_;
    return KeyEvent{control_key(byte)};
  }
  if (rest().size() < 2 && !no_more) return std::nullopt;
  const bool edit = rest().size() >= 2 && rest()[1] == 0x05;
  at_ += edit ? 2 : 1;
  return KeyEvent{edit ? Key::external_editor : Key::unknown};
}

std::optional<KeyEvent> KeyDecoder::take_text(bool no_more) {
  const std::string_view left = rest();
  std::size_t end = 0;
  while (end < left.size() && !is_control(left[end])) {
    const Utf8Part part = next_utf8(left, end);
    if (part.kind == Utf8Part::Kind::cut && !no_more) break;
    end += part.bytes;
  }
  if (end == 0) return std::nullopt;  // a character has begun
  KeyEvent event{Key::text, std::string(left.substr(0, end))};
  at_ += end;
  return event;
}

std::optional<KeyEvent> KeyDecoder::next(bool no_more) {
  drop_taken();
  if (in_paste_) return take_paste();
  if (at_ == pending_.size()) return std::nullopt;
  const char first = pending_[at_];
  if (first == kEscape) return take_escape(no_more);
  if (is_control(first)) return take_control(static_cast<unsigned char>(first), no_more);
  return take_text(no_more);
}

}  // namespace ingot
