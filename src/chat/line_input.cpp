#include "src/chat/line_input.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace ingot {
namespace {

/// How long the rest of an escape sequence may take before its beginning is the Escape key.
constexpr int kEscapeMs = 60;
constexpr char kInterrupt = '\x03';
constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

}  // namespace

LineInput::LineInput(int fd, int wake_fd, const InputHistory& history, Hooks hooks)
    : fd_(fd),
      wake_fd_(wake_fd),
      hooks_(std::move(hooks)),
      terminal_(fd, hooks_.write),
      editor_(history, hooks_.complete),
      view_(terminal_.size().columns, terminal_.size().rows) {
  terminal_.for_answering();
}

LineInput::Fill LineInput::fill(int timeout_ms) {
  pollfd waiting[2] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  const int ready = ::poll(waiting, 2, timeout_ms);
  if (ready == 0) return Fill::quiet;
  if (ready < 0) return errno == EINTR ? Fill::bytes : Fill::gone;
  if (waiting[1].revents != 0) return Fill::woken;
  char buffer[kPieceBytes];
  const ssize_t got = ::read(fd_, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Fill::bytes;
  if (got <= 0) return Fill::gone;
  // Ctrl-C by itself is typed: a terminal that never ends a paste must not take the keyboard away.
  if (decoder_.in_paste() && got == 1 && buffer[0] == kInterrupt) decoder_.abandon_paste();
  decoder_.push({buffer, static_cast<std::size_t>(got)});
  return Fill::bytes;
}

bool LineInput::input_ready() const {
  pollfd waiting{fd_, POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

void LineInput::draw() {
  hooks_.write(
      view_.draw({prompt_, continuation_, editor_.text(), editor_.cursor(), editor_.hint()}));
}

void LineInput::with_terminal_restored(const std::function<void()>& run) {
  terminal_.restore();
  run();
  terminal_.for_answering();
}

void LineInput::suspend() {
  hooks_.write(view_.finish());
  with_terminal_restored([] { ::raise(SIGTSTP); });
  terminal_.for_editing();
  fit_window();
}

void LineInput::fit_window() {
  const auto size = terminal_.size();
  view_.resize(size.columns, size.rows);
}

LineInput::Read LineInput::read(std::string_view prompt, std::string_view continuation) {
  prompt_ = prompt;
  continuation_ = continuation;
  terminal_.for_editing();
  fit_window();
  view_.forget();
  draw();
  bool touched = false;
  const auto leave = [&](Kind kind) {
    hooks_.write(view_.finish());
    terminal_.for_answering();
    return Read{kind, {}, {}, touched};
  };
  bool stale = false;  // what is on the screen
  bool no_more = false;
  bool works = hooks_.while_idle != nullptr;  // more may be left to do
  while (true) {
    std::optional<KeyEvent> event;
    if (!kept_.empty()) {
      event = std::move(kept_.front());
      kept_.pop_front();
    } else {
      event = decoder_.next(std::exchange(no_more, false));
    }
    if (!event) {
      // Drawn once for all that came at once.
      if (stale && !decoder_.in_paste() && !input_ready()) {
        draw();
        stale = false;
      }
      const bool escape = decoder_.waits() && !decoder_.in_paste();
      switch (fill(escape ? kEscapeMs : works ? 0 : -1)) {
        case Fill::bytes:
          break;
        case Fill::quiet:
          if (escape) {
            no_more = true;
          } else {
            works = hooks_.while_idle();
          }
          break;
        case Fill::gone:
          return leave(Kind::gone);
        case Fill::woken:
          switch (hooks_.after_wake()) {
            case Wake::leave:
              return leave(Kind::woken);
            case Wake::interrupt:
              if (decoder_.in_paste()) decoder_.abandon_paste();
              kept_.push_front({Key::interrupt});
              break;
            case Wake::go_on:
              fit_window();
              draw();
              break;
          }
          break;
      }
      continue;
    }
    touched |= event->key != Key::interrupt || !editor_.text().empty();
    switch (editor_.handle(*event)) {
      case LineEditor::Outcome::nothing:
        break;
      case LineEditor::Outcome::fold:
        hooks_.write(view_.erase());
        hooks_.unfold();
        stale = true;
        break;
      case LineEditor::Outcome::changed:
        stale = true;
        break;
      case LineEditor::Outcome::submit: {
        draw();
        hooks_.write(view_.finish());
        Read result{Kind::message, {}, editor_.text()};
        result.message = editor_.take();
        terminal_.for_answering();
        return result;
      }
      case LineEditor::Outcome::interrupt: {
        const std::string text = editor_.text();
        editor_.clear();
        if (text.empty()) return leave(Kind::interrupted);
        // The mark stands behind the text, wherever the cursor was.
        hooks_.write(view_.draw({prompt_, continuation_, text, text.size()}) + "^C" +
                     view_.finish());
        stale = true;
        break;
      }
      case LineEditor::Outcome::end_of_input:
        return leave(Kind::end_of_input);
      case LineEditor::Outcome::suspend:
        suspend();
        stale = true;
        break;
      case LineEditor::Outcome::clear_screen:
        hooks_.write("\x1b[H\x1b[2J");
        view_.forget();
        stale = true;
        break;
      case LineEditor::Outcome::external_editor: {
        hooks_.write(view_.erase());
        std::optional<std::string> text;
        with_terminal_restored([&] { text = hooks_.edit_elsewhere(editor_.text()); });
        if (hooks_.after_wake() == Wake::leave) return leave(Kind::woken);
        terminal_.for_editing();
        fit_window();
        if (text) editor_.set_text(std::move(*text));
        stale = true;
        break;
      }
    }
  }
}

void LineInput::poll_keys(const std::function<bool(const KeyEvent&)>& on_key) {
  while (input_ready() && fill(0) == Fill::bytes) {
    while (auto event = decoder_.next()) {
      if (event->key == Key::suspend) {
        with_terminal_restored([] { ::raise(SIGTSTP); });
      } else if (!on_key(*event)) {
        kept_.push_back(std::move(*event));
      }
    }
  }
}

}  // namespace ingot
