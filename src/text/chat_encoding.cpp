#include "src/text/chat_encoding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "src/text/chat_literals.hpp"
#include "src/text/chat_order.hpp"
#include "src/text/control_tokens.hpp"
#include "src/text/dsml.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

/// One turn as it is rendered: tool results and neighbouring user messages are one user turn.
struct Turn {
  struct Block {
    std::string_view text;
    bool is_tool_result;
    std::string_view tool_call_id;
  };
  Role role;
  const ChatMessage* message;  ///< where all but a user turn's blocks and task come from
  std::vector<Block> blocks;   ///< of a user turn
  Task task = Task::none;
};

/// Where the tool calls of an assistant turn stand, by id.
using CallOrder = std::unordered_map<std::string_view, std::size_t>;

std::vector<Turn> merge_user_turns(std::span<const ChatMessage> messages) {
  std::vector<Turn> turns;
  for (const ChatMessage& message : messages) {
    const bool is_tool = message.role == Role::tool;
    if (!is_tool && message.role != Role::user) {
      turns.push_back({message.role, &message, {}, message.task});
      continue;
    }
    // A task closes its user turn; a tool result joins it all the same.
    const bool joins = !turns.empty() && turns.back().role == Role::user &&
                       (is_tool || turns.back().task == Task::none);
    if (!joins) turns.push_back({Role::user, &message, {}, Task::none});
    turns.back().blocks.push_back({message.content, is_tool, message.tool_call_id});
    if (message.task != Task::none) turns.back().task = message.task;
  }
  return turns;
}

/// Puts the tool results of a user turn in the order of the calls; texts between them stay.
void sort_tool_results(Turn& turn, const CallOrder& order) {
  const auto place = [&](const Turn::Block& block) {
    const auto found = order.find(block.tool_call_id);
    return found != order.end() ? found->second : 0;
  };
  std::vector<Turn::Block> results;
  for (const Turn::Block& block : turn.blocks) {
    if (block.is_tool_result) results.push_back(block);
  }
  std::stable_sort(results.begin(), results.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::size_t next = 0;
  for (Turn::Block& block : turn.blocks) {
    if (block.is_tool_result) block = results[next++];
  }
}

void sort_all_tool_results(std::vector<Turn>& turns) {
  CallOrder order;
  for (Turn& turn : turns) {
    if (turn.role == Role::user) sort_tool_results(turn, order);
    if (turn.role != Role::assistant || turn.message->tool_calls.empty()) continue;
    order.clear();
    for (std::size_t i = 0; i < turn.message->tool_calls.size(); ++i) {
      const std::string& id = turn.message->tool_calls[i].id;
      if (!id.empty()) order[id] = i;
    }
  }
}

bool is_user_like(Role role) {
  return role == Role::user || role == Role::developer;
}

/// The last user or developer turn, or nothing.
std::optional<std::size_t> last_user(const std::vector<Turn>& turns) {
  for (std::size_t i = turns.size(); i-- > 0;) {
    if (is_user_like(turns[i].role)) return i;
  }
  return std::nullopt;
}

std::string_view task_token(Task task) {
  switch (task) {
    case Task::none:
      break;
    case Task::action:
      return control::kAction;
    case Task::query:
      return control::kQuery;
    case Task::authority:
      return control::kAuthority;
    case Task::domain:
      return control::kDomain;
    case Task::title:
      return control::kTitle;
    case Task::read_url:
      return control::kReadUrl;
  }
  return {};
}

Result<std::string_view> effort_prefix(const ChatEncodingOptions& options) {
  if (auto known = check_effort(options.thinking, options.efforts); !known) {
    return Unexpected(known.error());
  }
  const bool april = options.efforts == EffortTable::april;
  switch (options.thinking) {
    case Thinking::none:
      return std::string_view();
    case Thinking::low:
      return std::string_view();
    case Thinking::high:
      return april ? std::string_view() : literals::kAbsoluteMaximum;
    case Thinking::max:
      return april ? literals::kAbsoluteMaximum : literals::kBeyondMaximum;
  }
  return fail(ErrorCode::invalid_argument, "thinking effort out of range");
}

/// Writes the turns; keeps what they need to know of each other.
class Renderer {
 public:
  Renderer(const std::vector<Turn>& turns, const ChatEncodingOptions& options, bool drop_thinking)
      : turns_(turns),
        last_user_(last_user(turns)),
        thinks_(options.thinking != Thinking::none),
        generation_prompt_(options.generation_prompt),
        drop_thinking_(drop_thinking) {}

  Result<Prompt> render(std::string_view prefix) {
    out_.control(control::kBos);
    out_.control(prefix);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      if (const auto written = write_turn(i); !written) return tl::unexpected(written.error());
      write_transition(i);
    }
    return out_.take();
  }

 private:
  Result<void> write_turn(std::size_t index) {
    const Turn& turn = turns_[index];
    switch (turn.role) {
      case Role::developer:
        out_.control(control::kUser);
        [[fallthrough]];
      case Role::system:
        out_.text(turn.message->content);
        return write_tools_and_format(*turn.message);
      case Role::user:
        write_user(turn);
        return {};
      case Role::latest_reminder:
        out_.control(control::kLatestReminder);
        out_.text(turn.message->content);
        return {};
      case Role::assistant:
        write_assistant(index);
        return {};
      case Role::tool:  // merged into user turns
        break;
    }
    return {};
  }

  Result<void> write_tools_and_format(const ChatMessage& message) {
    if (!message.tools.empty()) {
      out_.control("\n\n");
      if (const auto written = write_tools(out_, message.tools); !written) return written;
    }
    if (!message.response_format.empty()) {
      const Result<JsonValue> schema = parse_json(message.response_format, "response_format");
      if (!schema) return fail(ErrorCode::invalid_argument, schema.error().message);
      out_.control("\n\n");
      out_.control(literals::kResponseFormat);
      out_.text(to_python_json(*schema));
    }
    return {};
  }

  void write_user(const Turn& turn) {
    out_.control(control::kUser);
    for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
      const Turn::Block& block = turn.blocks[i];
      if (i > 0) out_.control("\n\n");
      if (block.is_tool_result) out_.control("<tool_result>");
      out_.text(block.text);
      if (block.is_tool_result) out_.control("</tool_result>");
    }
  }

  void write_assistant(std::size_t index) {
    const ChatMessage& message = *turns_[index].message;
    const bool answers_task = index > 0 && turns_[index - 1].task != Task::none;
    const bool after_last_user = !last_user_ || index > *last_user_;
    if (thinks_ && !answers_task && (!drop_thinking_ || after_last_user)) {
      out_.text(message.reasoning);
      out_.control(control::kThinkEnd);
    }
    out_.text(message.content);
    if (!message.tool_calls.empty()) {
      out_.control("\n\n");
      write_tool_calls(out_, message.tool_calls);
    }
    if (!message.continues) out_.control(control::kEos);
  }

  void write_transition(std::size_t index) {
    const Turn& turn = turns_[index];
    const bool last = index + 1 == turns_.size();
    if (!last && turns_[index + 1].role != Role::assistant &&
        turns_[index + 1].role != Role::latest_reminder) {
      return;
    }
    if (turn.task == Task::action) {
      out_.control(control::kAssistant);
      out_.control(thinks_ ? control::kThinkStart : control::kThinkEnd);
    }
    if (turn.task != Task::none) {
      out_.control(task_token(turn.task));
    } else if (is_user_like(turn.role) && (!last || generation_prompt_)) {
      const bool from_last_user = !last_user_ || index >= *last_user_;
      out_.control(control::kAssistant);
      out_.control(thinks_ && (!drop_thinking_ || from_last_user) ? control::kThinkStart
                                                                  : control::kThinkEnd);
    }
  }

  const std::vector<Turn>& turns_;
  std::optional<std::size_t> last_user_;
  bool thinks_, generation_prompt_, drop_thinking_;
  PromptBuilder out_;
};

/// Cuts the control tokens out of a piece of ours. No marker is the beginning of another.
template <class OnText, class OnMarker>
void cut_markers(std::string_view text, const OnText& on_text, const OnMarker& on_marker) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto marker =
        std::find_if(control::kAll.begin(), control::kAll.end(),
                     [&](std::string_view m) { return text.substr(at).starts_with(m); });
    if (marker == control::kAll.end()) {
      ++at;
      continue;
    }
    on_text(text.substr(done, at - done));
    on_marker(*marker);
    at += marker->size();
    done = at;
  }
  on_text(text.substr(done));
}

}  // namespace

std::string Prompt::text() const {
  std::string joined;
  for (const PromptPiece& piece : pieces)
    joined += piece.text;
  return joined;
}

std::size_t Prompt::bytes() const {
  std::size_t bytes = 0;
  for (const PromptPiece& piece : pieces)
    bytes += piece.text.size();
  return bytes;
}

Result<Prompt> render_chat(std::span<const ChatMessage> messages,
                           const ChatEncodingOptions& options) {
  const auto with_context = [](Error error) {
    error.message = "rendering a conversation: " + error.message;
    return tl::unexpected(std::move(error));
  };
  const Result<std::string_view> prefix = effort_prefix(options);
  if (!prefix) return with_context(prefix.error());
  if (const auto checked = check_conversation(messages, options.generation_prompt); !checked) {
    return with_context(checked.error());
  }
  std::vector<Turn> turns = merge_user_turns(messages);
  sort_all_tool_results(turns);
  // Reasoning between calls and their results is part of the work: with tools all of it is kept.
  const bool has_tools = std::any_of(messages.begin(), messages.end(),
                                     [](const ChatMessage& m) { return !m.tools.empty(); });
  const bool drop_thinking = !options.keep_thinking && !has_tools;
  if (options.thinking != Thinking::none && drop_thinking) {
    const std::size_t last = last_user(turns).value_or(0);
    std::size_t index = 0;
    std::erase_if(turns,
                  [&](const Turn& turn) { return index++ < last && turn.role == Role::developer; });
  }
  Result<Prompt> prompt = Renderer(turns, options, drop_thinking).render(*prefix);
  if (!prompt) return with_context(prompt.error());
  return prompt;
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt,
                                   bool allow_special) {
  if (allow_special) return tokenizer.encode(prompt.text(), AddedTokens::recognise);
  std::vector<TokenId> ids;
  std::string ordinary;  // up to the next control token: borders of pieces do not split words
  const auto flush = [&] {
    tokenizer.encode(ordinary, AddedTokens::as_text, ids);
    ordinary.clear();
  };
  for (const PromptPiece& piece : prompt.pieces) {
    if (!piece.is_control) {
      ordinary += piece.text;
      continue;
    }
    cut_markers(
        piece.text, [&](std::string_view text) { ordinary += text; },
        [&](std::string_view marker) {
          flush();
          ids.push_back(*tokenizer.added_token(marker));  // load() has seen to it
        });
  }
  flush();
  return ids;
}

}  // namespace ingot
