#include "src/chat/line_editor.hpp"

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

/// As far into a text as the mark of a quoted message reaches.
constexpr std::size_t kMarkBytes = 3;
/// Candidates beyond these are counted, not shown.
constexpr std::size_t kMostShown = 24;

std::string common_start(const std::vector<std::string>& words) {
  std::string start = words.front();
  for (const std::string& word : words) {
    const auto differ = std::mismatch(start.begin(), start.end(), word.begin(), word.end());
    start.erase(differ.first, start.end());
  }
  // Never half a character.
  while (!start.empty() && start.size() < words.front().size() &&
         (static_cast<unsigned char>(words.front()[start.size()]) & 0xC0) == 0x80) {
    start.pop_back();
  }
  return start;
}

}  // namespace

void LineEditor::clear() {
  buffer_.clear();
  hint_.clear();
  entry_.reset();
  draft_.clear();
  start_pasted_ = end_pasted_ = searching_ = false;
}

void LineEditor::set_text(std::string text) {
  clear();
  buffer_.set(std::move(text));
}

TypedMessage LineEditor::take() {
  TypedMessage message = message_of(buffer_.text(), !start_pasted_);
  clear();
  return message;
}

void LineEditor::insert(const KeyEvent& event) {
  const bool pasted = event.key == Key::paste;
  if (pasted && buffer_.cursor() < kMarkBytes) start_pasted_ = true;
  buffer_.insert(event.text);
  if (buffer_.at_end()) end_pasted_ = pasted;
}

LineEditor::Outcome LineEditor::enter() {
  switch (continuation_of(buffer_.text(), !start_pasted_, !end_pasted_)) {
    case Continuation::none:
      buffer_.text_end();
      return Outcome::submit;
    case Continuation::quoted:
      buffer_.insert("\n");
      break;
    case Continuation::backslash:
      buffer_.text_end();
      buffer_.replace_before_cursor(buffer_.text().size() - 1, "\n");
      break;
  }
  end_pasted_ = false;
  return Outcome::changed;
}

void LineEditor::complete() {
  const std::string before = buffer_.text().substr(0, buffer_.cursor());
  // Only a command is completed; elsewhere a Tab is a Tab.
  if (!before.starts_with('/') || before.find('\n') != std::string::npos) {
    insert({Key::text, "\t"});
    return;
  }
  const Completions found = complete_(before);
  if (found.candidates.empty()) return;
  const std::string start = common_start(found.candidates);
  const bool one = found.candidates.size() == 1;
  const std::string_view word = std::string_view(before).substr(found.begin);
  if (one || start.size() > word.size()) {
    // A folder goes on.
    buffer_.replace_before_cursor(found.begin, one && !start.ends_with('/') ? start + ' ' : start);
    return;
  }
  for (std::size_t i = 0; i < found.candidates.size() && i < kMostShown; ++i)
    hint_ += (i > 0 ? "  " : "") + found.candidates[i];
  if (found.candidates.size() > kMostShown) {
    hint_ += "  and " + std::to_string(found.candidates.size() - kMostShown) + " more";
  }
}

bool LineEditor::show_entry(std::size_t index) {
  if (index >= history_->entries().size()) return false;
  if (!entry_) draft_ = buffer_.text();
  entry_ = index;
  buffer_.set(history_->entries()[index]);
  // It was complete when it was handed over: a mark that is open in it was pasted.
  const Continuation open = continuation_of(buffer_.text());
  start_pasted_ = open == Continuation::quoted;
  end_pasted_ = open != Continuation::none;
  return true;
}

LineEditor::Outcome LineEditor::previous_entry() {
  const std::size_t now = entry_.value_or(history_->entries().size());
  return now > 0 && show_entry(now - 1) ? Outcome::changed : Outcome::nothing;
}

LineEditor::Outcome LineEditor::next_entry() {
  if (!entry_) return Outcome::nothing;
  if (show_entry(*entry_ + 1)) return Outcome::changed;
  entry_.reset();
  buffer_.set(std::exchange(draft_, {}));
  return Outcome::changed;
}

void LineEditor::search_from(std::size_t before) {
  const auto& entries = history_->entries();
  for (std::size_t i = std::min(before, entries.size()); i-- > 0;) {
    const std::size_t at = entries[i].find(needle_);
    if (at == std::string::npos) continue;
    show_entry(i);
    buffer_.set(entries[i], at);
    hint_ = "search: " + needle_;
    return;
  }
  hint_ = "search: " + needle_ + " (nothing older has it)";
}

LineEditor::Outcome LineEditor::search_key(const KeyEvent& event) {
  const std::size_t all = history_->entries().size();
  switch (event.key) {
    case Key::text:
    case Key::paste:
      needle_ += event.text;
      search_from(entry_ ? *entry_ + 1 : all);
      return Outcome::changed;
    case Key::backspace: {
      EditBuffer needle;
      needle.set(needle_);
      needle.erase_before();
      needle_ = needle.text();
      search_from(all);
      return Outcome::changed;
    }
    case Key::search:
      search_from(entry_.value_or(all));
      return Outcome::changed;
    case Key::escape:
    case Key::interrupt:
      searching_ = false;
      hint_.clear();
      if (entry_) buffer_.set(std::exchange(draft_, {}));
      entry_.reset();
      return Outcome::changed;
    default:
      searching_ = false;
      hint_.clear();
      return edit(event);
  }
}

LineEditor::Outcome LineEditor::handle(const KeyEvent& event) {
  if (searching_) return search_key(event);
  const bool had_hint = !hint_.empty();
  hint_.clear();
  const Outcome outcome = edit(event);
  return outcome == Outcome::nothing && had_hint ? Outcome::changed : outcome;
}

LineEditor::Outcome LineEditor::edit(const KeyEvent& event) {
  const std::size_t bytes_before = buffer_.text().size();
  switch (event.key) {
    case Key::text:
    case Key::paste:
      insert(event);
      return Outcome::changed;
    case Key::enter:
      return enter();
    case Key::newline:
      insert({Key::text, "\n"});
      return Outcome::changed;
    case Key::tab:
      complete();
      return Outcome::changed;
    case Key::interrupt:
      return Outcome::interrupt;
    case Key::end_of_input:
      if (buffer_.empty()) return Outcome::end_of_input;
      buffer_.erase_at();
      break;
    case Key::suspend:
      return Outcome::suspend;
    case Key::clear_screen:
      return Outcome::clear_screen;
    case Key::fold:
      return Outcome::fold;
    case Key::external_editor:
      return Outcome::external_editor;
    case Key::up:
      return buffer_.up() ? Outcome::changed : previous_entry();
    case Key::down:
      return buffer_.down() ? Outcome::changed : next_entry();
    case Key::previous_entry:
      return previous_entry();
    case Key::next_entry:
      return next_entry();
    case Key::search:
      searching_ = true;
      needle_.clear();
      hint_ = "search: ";
      return Outcome::changed;
    case Key::backspace:
      buffer_.erase_before();
      break;
    case Key::erase_at:
      buffer_.erase_at();
      break;
    case Key::left:
      buffer_.left();
      break;
    case Key::right:
      buffer_.right();
      break;
    case Key::line_start:
      buffer_.line_start();
      break;
    case Key::line_end:
      buffer_.line_end();
      break;
    case Key::text_start:
      buffer_.text_start();
      break;
    case Key::text_end:
      buffer_.text_end();
      break;
    case Key::word_left:
      buffer_.word_left();
      break;
    case Key::word_right:
      buffer_.word_right();
      break;
    case Key::kill_to_line_end:
      buffer_.kill_to_line_end();
      break;
    case Key::kill_to_line_start:
      buffer_.kill_to_line_start();
      break;
    case Key::kill_word_before:
      buffer_.kill_word_before();
      break;
    case Key::kill_word_after:
      buffer_.kill_word_after();
      break;
    case Key::yank:
      buffer_.yank();
      break;
    case Key::escape:
    case Key::unknown:
      return Outcome::nothing;
  }
  if (buffer_.empty()) start_pasted_ = false;
  if (buffer_.text().size() != bytes_before) end_pasted_ = false;
  return Outcome::changed;
}

}  // namespace ingot
