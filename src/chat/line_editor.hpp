#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/edit_buffer.hpp"
#include "src/chat/input_history.hpp"
#include "src/chat/key_decoder.hpp"
#include "src/chat/multi_line.hpp"

namespace ingot {

/// What a Tab may stand for.
struct Completions {
  std::size_t begin = 0;                ///< the word that is completed begins here, in the text
  std::vector<std::string> candidates;  ///< whole words, sorted
};

/// The editing of one message, key by key: text and cursor, history, search in it, completion, and
/// the rules for messages of several lines. Pure: it knows keys and what is to be seen, no
/// terminal.
class LineEditor {
 public:
  enum class Outcome {
    nothing,
    changed,  ///< what is to be seen may have changed
    submit,   ///< take() has the message
    interrupt,
    end_of_input,
    suspend,
    clear_screen,
    fold,
    external_editor,
  };
  /// @param before  the text up to the cursor, one line
  using Complete = std::function<Completions(std::string_view before)>;

  /// @param history  must outlive the editor
  LineEditor(const InputHistory& history, Complete complete)
      : history_(&history), complete_(std::move(complete)) {}

  Outcome handle(const KeyEvent& event);
  /// The message; the editor is empty afterwards.
  TypedMessage take();
  /// The text as it was typed, for the history.
  const std::string& text() const { return buffer_.text(); }
  std::size_t cursor() const { return buffer_.cursor(); }
  void set_text(std::string text);
  void clear();

  /// A line to show below the text: candidates, or what is searched for. Mostly empty.
  const std::string& hint() const { return hint_; }

 private:
  Outcome edit(const KeyEvent& event);
  Outcome enter();
  void insert(const KeyEvent& event);
  void complete();
  bool show_entry(std::size_t index);
  Outcome previous_entry();
  Outcome next_entry();
  Outcome search_key(const KeyEvent& event);
  void search_from(std::size_t before);

  const InputHistory* history_;
  Complete complete_;
  EditBuffer buffer_;
  std::string hint_;
  bool start_pasted_ = false;         ///< a paste reaches into the first three characters
  bool end_pasted_ = false;           ///< the last change was a paste at the end
  std::optional<std::size_t> entry_;  ///< of the history, that is shown
  std::string draft_;                 ///< what was there before it
  bool searching_ = false;
  std::string needle_;
};

}  // namespace ingot
