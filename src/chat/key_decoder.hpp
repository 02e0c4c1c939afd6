#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

/// What a user did to a keyboard, by what it is to a line editor.
enum class Key {
  text,   ///< KeyEvent::text, typed
  paste,  ///< KeyEvent::text, pasted: line ends are LF, nothing else is changed
  enter,
  newline,  ///< Alt-Enter: a line break in the message
  tab,
  backspace,
  erase_at,
  left,
  right,
  up,
  down,
  line_start,
  line_end,
  text_start,
  text_end,
  word_left,
  word_right,
  kill_to_line_end,
  kill_to_line_start,
  kill_word_before,
  kill_word_after,
  yank,
  clear_screen,
  interrupt,     ///< Ctrl-C
  end_of_input,  ///< Ctrl-D
  suspend,       ///< Ctrl-Z
  previous_entry,
  next_entry,
  search,           ///< Ctrl-R
  fold,             ///< Ctrl-T
  external_editor,  ///< Ctrl-X Ctrl-E
  escape,
  unknown,
};

struct KeyEvent {
  Key key = Key::unknown;
  std::string text = {};
};

/// The longest paste that is kept; the rest of a longer one is dropped.
inline constexpr std::size_t kMostPasteBytes = std::size_t{16} << 20;

/// Makes key events from the bytes that a terminal sends in raw mode, however they are cut: control
/// characters, the sequences of xterm and its kin, UTF-8, and bracketed paste, inside of which
/// every byte is text. Time is linear in the bytes.
class KeyDecoder {
 public:
  void push(std::string_view bytes) { pending_ += bytes; }
  /// The next event. nullopt: more bytes are needed; with `no_more` (nothing followed for a while)
  /// only where there is nothing at all, so that a lone Escape becomes one.
  std::optional<KeyEvent> next(bool no_more = false);
  /// Bytes wait for others: an escape sequence, a character or a paste has begun.
  bool waits() const { return in_paste_ || at_ < pending_.size(); }
  bool in_paste() const { return in_paste_; }
  /// Drops a paste whose end does not come.
  void abandon_paste();

 private:
  std::optional<KeyEvent> take_paste();
  std::optional<KeyEvent> take_escape(bool no_more);
  std::optional<KeyEvent> take_text(bool no_more);
  std::optional<KeyEvent> take_control(unsigned char byte, bool no_more);
  std::string_view rest() const { return std::string_view(pending_).substr(at_); }
  void drop_taken();

  std::string pending_;
  std::size_t at_ = 0;  ///< in pending_: what came before is taken
  bool in_paste_ = false;
  std::string paste_;
};

/// CR and CRLF become LF.
std::string with_plain_line_ends(std::string_view text);

}  // namespace ingot
