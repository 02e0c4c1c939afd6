#pragma once

#include <string>
#include <vector>

namespace ingot {

enum class Role { system, user, developer, latest_reminder, assistant, tool };

/// Internal tasks of the model family (model specification 6.2); `none` in ordinary chat.
enum class Task { none, action, query, authority, domain, title, read_url };

/// One function call of an assistant turn. `arguments` is the JSON text as given: the encoder
/// writes it as parameters where it is an object, and whole where it is not valid JSON.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;

  bool operator==(const ToolCall&) const = default;
};

/// One turn of a conversation, in the shape of the OpenAI chat format.
struct ChatMessage {
  Role role = Role::user;
  std::string content;
  std::string reasoning;             ///< assistant: what it thought (`reasoning_content`)
  std::vector<ToolCall> tool_calls;  ///< assistant
  std::string tool_call_id;          ///< tool: which call this answers
  std::vector<std::string> tools;    ///< JSON text of each `function` object, key order kept
  std::string response_format;       ///< JSON text of the schema, or empty
  Task task = Task::none;
  bool continues = false;  ///< assistant: a prefix to go on from, no EOS (`wo_eos`)

  bool operator==(const ChatMessage&) const = default;
};

/// How much the model is asked to think. Which of them a checkpoint knows is its effort table's
/// affair (effort.hpp).
enum class Thinking { none, low, high, max };

}  // namespace ingot
