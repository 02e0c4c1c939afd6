#include "src/text/chat_order.hpp"

#include <fmt/format.h>

#include <string>
#include <unordered_set>

namespace ingot {
namespace {

/// Why the fields of a message do not go with its role; empty if they do.
std::string field_problem(const ChatMessage& message) {
  const Role role = message.role;
  const bool assistant = role == Role::assistant;
  if (!assistant) {
    if (!message.reasoning.empty())
      return "reasoning_content: only an assistant has one; leave it out";
    if (!message.tool_calls.empty())
      return "tool_calls: only an assistant makes them; leave them out";
    if (message.continues)
      return "wo_eos: only an assistant's message can be continued; leave it out";
  }
  if (role != Role::tool && !message.tool_call_id.empty()) {
    return "tool_call_id: only a tool result has one; leave it out";
  }
  if (role != Role::system && role != Role::developer) {
    if (!message.tools.empty())
      return "tools: they belong to the system or developer message; move them there";
    if (!message.response_format.empty()) {
      return "response_format: it belongs to the system or developer message; move it there";
    }
  }
  if (message.task == Task::title
          ? !assistant
          : message.task != Task::none && role != Role::user && role != Role::developer) {
    return message.task == Task::title
               ? "task: title follows an assistant message; move it there"
               : "task: only a user or developer message has one; leave it out";
  }
  if (role == Role::developer && message.content.empty()) {
    return "content: a developer message must have one; give a text";
  }
  return {};
}

/// Walks a conversation; remembers what a message needs to know of those before it.
class OrderCheck {
 public:
  /// Why `message` cannot stand after those before it; empty if it can.
  std::string next(const ChatMessage& message) {
    std::string problem = problem_of(message);
    first_ = false;
    switch (message.role) {
      case Role::assistant:
        has_question_ = false;
        calls_ = !message.tool_calls.empty();
        call_ids_.clear();
        for (const ToolCall& call : message.tool_calls) {
          if (!call.id.empty()) call_ids_.insert(call.id);
        }
        break;
      case Role::user:
      case Role::tool:
        has_question_ = true;
        break;
      case Role::developer:
        has_question_ = true;
        calls_ = false;
        break;
      case Role::system:
      case Role::latest_reminder:
        calls_ = false;
        break;
    }
    return problem;
  }

 private:
  std::string problem_of(const ChatMessage& message) const {
    switch (message.role) {
      case Role::system:
        if (!first_)
          return "a system message must be the first and the only one; move it there, or join them";
        return {};
      case Role::assistant:
        if (!has_question_) {
          return "an assistant message must follow a user, developer or tool message; put one "
                 "before it";
        }
        return {};
      case Role::tool:
        if (!calls_)
          return "a tool result must follow an assistant message with tool_calls; give the calls, "
                 "too";
        if (!message.tool_call_id.empty() && !call_ids_.empty() &&
            call_ids_.count(message.tool_call_id) == 0) {
          return fmt::format(
              "tool_call_id: the assistant made no call \"{}\"; give the id of one that it "
              "made",
              message.tool_call_id);
        }
        return {};
      case Role::user:
      case Role::developer:
      case Role::latest_reminder:
        return {};
    }
    return {};
  }

  bool first_ = true;
  bool has_question_ = false;  ///< since the last assistant message
  bool calls_ = false;         ///< the last assistant message's calls may still be answered
  std::unordered_set<std::string_view> call_ids_;
};

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::system:
      return "system";
    case Role::user:
      return "user";
    case Role::developer:
      return "developer";
    case Role::latest_reminder:
      return "latest_reminder";
    case Role::assistant:
      return "assistant";
    case Role::tool:
      return "tool";
  }
  return "";
}

Result<void> check_conversation(std::span<const ChatMessage> messages, bool generation_prompt) {
  if (messages.empty()) {
    return fail(ErrorCode::invalid_argument, "messages: empty; at least one is needed");
  }
  OrderCheck order;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    std::string problem = order.next(messages[i]);
    if (problem.empty()) problem = field_problem(messages[i]);
    if (problem.empty()) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("messages[{}] (role {}): {}", i, role_name(messages[i].role), problem));
  }
  const Role last = messages.back().role;
  if (generation_prompt && (last == Role::system || last == Role::latest_reminder)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("messages[{}] (role {}): nothing to answer; end with a user message",
                            messages.size() - 1, role_name(last)));
  }
  return {};
}

Result<void> check_answerable(std::span<const ChatMessage> messages) {
  if (messages.empty()) return {};
  const ChatMessage& last = messages.back();
  if (last.role != Role::assistant || last.continues || last.task != Task::none) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("messages[{}] (role assistant): the answer is finished, so nothing is "
                          "left to answer; end with a user message, or give it `prefix: true` to "
                          "have it continued",
                          messages.size() - 1));
}

}  // namespace ingot
