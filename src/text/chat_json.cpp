#include "src/text/chat_json.hpp"

#include <fmt/core.h>

#include "src/text/chat_order.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

std::string_view task_name(Task task) {
  switch (task) {
    case Task::none:
      return "";
    case Task::action:
      return "action";
    case Task::query:
      return "query";
    case Task::authority:
      return "authority";
    case Task::domain:
      return "domain";
    case Task::title:
      return "title";
    case Task::read_url:
      return "read_url";
  }
  return "";
}

}  // namespace

std::string tool_call_json(const ToolCall& call) {
  return fmt::format(
      "{{\"id\": {}, \"type\": \"function\", \"function\": {{\"name\": {}, \"arguments\": {}}}}}",
      to_python_json(call.id), to_python_json(call.name), to_python_json(call.arguments));
}

std::string chat_message_json(const ChatMessage& message) {
  const bool only_calls = message.content.empty() && !message.tool_calls.empty();
  std::string out = fmt::format("{{\"role\": \"{}\", \"content\": {}", role_name(message.role),
                                only_calls ? "null" : to_python_json(message.content));
  if (!message.reasoning.empty()) {
    out += ", \"reasoning_content\": " + to_python_json(message.reasoning);
  }
  std::string list;
  for (const ToolCall& call : message.tool_calls) {
    list += (list.empty() ? "" : ", ") + tool_call_json(call);
  }
  if (!list.empty()) out += ", \"tool_calls\": [" + list + "]";
  if (!message.tool_call_id.empty()) {
    out += ", \"tool_call_id\": " + to_python_json(message.tool_call_id);
  }
  list.clear();
  for (const std::string& tool : message.tools) {
    list += fmt::format("{}{{\"type\": \"function\", \"function\": {}}}", list.empty() ? "" : ", ",
                        tool);
  }
  if (!list.empty()) out += ", \"tools\": [" + list + "]";
  if (!message.response_format.empty()) out += ", \"response_format\": " + message.response_format;
  if (message.task != Task::none) out += fmt::format(", \"task\": \"{}\"", task_name(message.task));
  if (message.continues) out += ", \"wo_eos\": true";
  return out + "}";
}

}  // namespace ingot
