#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "src/chat/key_decoder.hpp"
#include "src/chat/line_editor.hpp"
#include "src/chat/line_view.hpp"
#include "src/chat/terminal.hpp"

namespace ingot {

/// Reads messages from a terminal, with editing. Owns the terminal's modes while it lives: for
/// editing inside read(), for answering outside. One thread.
class LineInput {
 public:
  enum class Wake {
    go_on,
    interrupt,  ///< as if Ctrl-C had been pressed
    leave,
  };
  struct Hooks {
    Terminal::Write write;
    LineEditor::Complete complete;
    /// Gets the text so far and returns what an editor program made of it, or nothing where it
    /// failed; the terminal is as it was before us meanwhile.
    std::function<std::optional<std::string>(std::string)> edit_elsewhere;
    /// Ctrl-T: writes whole lines, or nothing.
    std::function<void()> unfold;
    /// The wake descriptor became readable, or something else ran that may have read it. Must leave
    /// it unreadable.
    std::function<Wake()> after_wake;
    /// While nothing is typed: does a little, for less time than anybody notices, and says whether
    /// more is left.
    std::function<bool()> while_idle;
  };
  enum class Kind {
    message,
    interrupted,   ///< Ctrl-C, with nothing typed
    end_of_input,  ///< Ctrl-D, with nothing typed
    gone,          ///< the terminal is gone
    woken,         ///< after_wake() said so
  };
  struct Read {
    Kind kind = Kind::message;
    TypedMessage message = {};
    std::string typed = {};  ///< as it stood on the screen, for the history
    bool touched = false;    ///< another key than Ctrl-C came before
  };

  LineInput(int fd, int wake_fd, const InputHistory& history, Hooks hooks);

  Read read(std::string_view prompt, std::string_view continuation);
  /// What the next read() begins with.
  void set_text(std::string text) { editor_.set_text(std::move(text)); }

  /// While an answer comes: takes the keys that lie ready. Those with a meaning now are handed to
  /// `on_key`; all others are kept for the next read().
  void poll_keys(const std::function<bool(const KeyEvent&)>& on_key);

  /// Runs something with the terminal as it was before us.
  void with_terminal_restored(const std::function<void()>& run);
  Terminal::Size size() const { return terminal_.size(); }

 private:
  enum class Fill { bytes, quiet, woken, gone };
  Fill fill(int timeout_ms);
  bool input_ready() const;
  void draw();
  void fit_window();
  void suspend();

  int fd_;
  int wake_fd_;
  Hooks hooks_;
  Terminal terminal_;
  KeyDecoder decoder_;
  std::deque<KeyEvent> kept_;  ///< keys that came while an answer was written
  LineEditor editor_;
  LineView view_;
  std::string prompt_;
  std::string continuation_;
};

}  // namespace ingot
