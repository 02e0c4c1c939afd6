// Messages in the OpenAI chat format, with what the official encoder's own inputs add to it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "src/text/chat_encoding.hpp"
#include "src/text/chat_order.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

using Kind = JsonValue::Kind;

constexpr std::array<std::pair<std::string_view, Role>, 6> kRoles = {{
    {"system", Role::system},
    {"user", Role::user},
    {"developer", Role::developer},
    {"latest_reminder", Role::latest_reminder},
    {"assistant", Role::assistant},
    {"tool", Role::tool},
}};

constexpr std::array<std::pair<std::string_view, Task>, 6> kTasks = {{
    {"action", Task::action},
    {"query", Task::query},
    {"authority", Task::authority},
    {"domain", Task::domain},
    {"title", Task::title},
    {"read_url", Task::read_url},
}};

Unexpected bad(std::string_view place, std::string_view what) {
  return fail(ErrorCode::invalid_argument, fmt::format("{}: {}", place, what));
}

Unexpected wrong_kind(std::string_view place, const JsonValue& value, std::string_view wanted) {
  return bad(place, fmt::format("{}, not {}; give {}", json_kind_name(value.kind), wanted, wanted));
}

bool is_null(const JsonValue* value) {
  return value == nullptr || value->kind == Kind::null;
}

/// A name for a message: quoted, and not longer than a line.
std::string shown(std::string_view text) {
  return text.size() <= 60 ? to_python_json(text)
                           : fmt::format("(a text of {} bytes)", text.size());
}

template <class Value, std::size_t N>
Result<Value> one_of(const std::array<std::pair<std::string_view, Value>, N>& table,
                     const JsonValue& value, std::string_view place) {
  if (value.kind != Kind::string) return wrong_kind(place, value, "a string");
  std::string names;
  for (const auto& [name, meaning] : table) {
    if (name == value.text) return meaning;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return bad(place, fmt::format("{} is not one of {}; give one of them", shown(value.text), names));
}

/// A field that is a string, absent or null.
Result<std::string> optional_string(const JsonValue& object, std::string_view key,
                                    std::string_view place) {
  const JsonValue* value = object.find(key);
  if (is_null(value)) return std::string();
  if (value->kind != Kind::string) {
    return wrong_kind(fmt::format("{}.{}", place, key), *value, "a string");
  }
  return value->text;
}

Result<std::string> required_string(const JsonValue& object, std::string_view key,
                                    std::string_view place) {
  if (is_null(object.find(key)))
    return bad(fmt::format("{}.{}", place, key), "missing; give a string");
  return optional_string(object, key, place);
}

Result<bool> optional_flag(const JsonValue& object, std::string_view key, std::string_view place) {
  const JsonValue* value = object.find(key);
  if (is_null(value)) return false;
  if (value->kind != Kind::boolean) {
    return wrong_kind(fmt::format("{}.{}", place, key), *value, "true or false");
  }
  return value->boolean;
}

/// A string, or an array of {"type": "text", "text": …}, whose texts are joined by a blank line as
/// the official encoder joins blocks.
Result<std::string> take_content(JsonValue& value, const std::string& place) {
  if (value.kind == Kind::string) return std::move(value.text);
  if (value.kind != Kind::array) {
    return wrong_kind(place, value, "a string or an array of text parts");
  }
  std::string joined;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const JsonValue& part = value.items[i];
    const std::string part_place = fmt::format("{}[{}]", place, i);
    if (part.kind != Kind::object) return wrong_kind(part_place, part, "an object");
    const Result<std::string> type = required_string(part, "type", part_place);
    if (!type) return type;
    if (*type != "text") {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}.type: {} parts are not supported, only text; leave it out",
                              part_place, shown(*type)));
    }
    const Result<std::string> text = required_string(part, "text", part_place);
    if (!text) return text;
    if (i > 0) joined += "\n\n";
    joined += *text;
  }
  return joined;
}

Result<std::vector<std::string>> read_tools(const JsonValue& value, const std::string& place) {
  std::vector<std::string> tools;
  if (value.kind != Kind::array) return wrong_kind(place, value, "an array");
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const JsonValue& tool = value.items[i];
    const std::string tool_place = fmt::format("{}[{}]", place, i);
    if (tool.kind != Kind::object) return wrong_kind(tool_place, tool, "an object");
    const Result<std::string> type = required_string(tool, "type", tool_place);
    if (!type) return tl::unexpected(type.error());
    if (*type != "function") {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}.type: {} is not supported, only function; leave it out",
                              tool_place, shown(*type)));
    }
    const JsonValue* function = tool.find("function");
    if (is_null(function)) return bad(tool_place + ".function", "missing; give an object");
    if (function->kind != Kind::object) {
      return wrong_kind(tool_place + ".function", *function, "an object");
    }
    if (const auto name = required_string(*function, "name", tool_place + ".function"); !name) {
      return tl::unexpected(name.error());
    }
    tools.push_back(to_python_json(*function));
  }
  return tools;
}

Result<std::vector<ToolCall>> read_tool_calls(const JsonValue& value, const std::string& place) {
  std::vector<ToolCall> calls;
  if (value.kind != Kind::array) return wrong_kind(place, value, "an array");
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const JsonValue& call = value.items[i];
    const std::string call_place = fmt::format("{}[{}]", place, i);
    if (call.kind != Kind::object) return wrong_kind(call_place, call, "an object");
    const Result<std::string> type = optional_string(call, "type", call_place);
    if (!type) return tl::unexpected(type.error());
    if (!type->empty() && *type != "function") {
      return bad(call_place + ".type",
                 fmt::format("{}, not function; give \"function\"", shown(*type)));
    }
    const JsonValue* function = call.find("function");
    if (is_null(function)) return bad(call_place + ".function", "missing; give an object");
    if (function->kind != Kind::object) {
      return wrong_kind(call_place + ".function", *function, "an object");
    }
    Result<std::string> id = optional_string(call, "id", call_place);
    Result<std::string> name = required_string(*function, "name", call_place + ".function");
    Result<std::string> arguments =
        required_string(*function, "arguments", call_place + ".function");
    for (const auto* field : {&id, &name, &arguments}) {
      if (!*field) return tl::unexpected(field->error());
    }
    calls.push_back({std::move(*id), std::move(*name), std::move(*arguments)});
  }
  return calls;
}

/// Known keys only: a misspelt one would be lost without a word. `name`, `mask` and `annotations`
/// have no place in the prompt and are skipped; `refusal`, `audio` and `function_call` are accepted
/// where they are null, as servers echo them.
Result<void> check_fields(const JsonValue& message, std::string_view place) {
  constexpr std::array<std::string_view, 14> kKnown = {
      "role",      "content",         "reasoning_content",
      "reasoning", "tool_calls",      "tool_call_id",
      "tools",     "response_format", "task",
      "wo_eos",    "prefix",          "name",
      "mask",      "annotations"};
  constexpr std::array<std::string_view, 3> kNullOnly = {"refusal", "audio", "function_call"};
  for (std::size_t i = 0; i < message.keys.size(); ++i) {
    const std::string& key = message.keys[i];
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
    if (std::find(kNullOnly.begin(), kNullOnly.end(), key) == kNullOnly.end()) {
      return bad(place, fmt::format("unknown field {}; leave it out", shown(key)));
    }
    if (message.items[i].kind != Kind::null) {
      return bad(fmt::format("{}.{}", place, key), "not supported, leave it out");
    }
  }
  return {};
}

/// `reasoning_content`, or `reasoning` as some servers call it.
Result<std::string> read_reasoning(const JsonValue& message, std::string_view place) {
  Result<std::string> content = optional_string(message, "reasoning_content", place);
  if (!content || !content->empty()) return content;
  return optional_string(message, "reasoning", place);
}

Result<void> read_lists(const JsonValue& value, const std::string& place, ChatMessage& message) {
  if (const JsonValue* calls = value.find("tool_calls"); !is_null(calls)) {
    Result<std::vector<ToolCall>> read = read_tool_calls(*calls, place + ".tool_calls");
    if (!read) return tl::unexpected(read.error());
    message.tool_calls = std::move(*read);
  }
  if (const JsonValue* tools = value.find("tools"); !is_null(tools)) {
    Result<std::vector<std::string>> read = read_tools(*tools, place + ".tools");
    if (!read) return tl::unexpected(read.error());
    message.tools = std::move(*read);
  }
  if (const JsonValue* format = value.find("response_format"); !is_null(format)) {
    if (format->kind != Kind::object) {
      return wrong_kind(place + ".response_format", *format, "an object");
    }
    if (!format->items.empty()) message.response_format = to_python_json(*format);
  }
  return {};
}

Result<ChatMessage> take_message(JsonValue& value, const std::string& place) {
  if (value.kind != Kind::object) return wrong_kind(place, value, "an object");
  if (const auto fields = check_fields(value, place); !fields) {
    return tl::unexpected(fields.error());
  }
  const JsonValue* role = value.find("role");
  if (is_null(role)) return bad(place + ".role", "missing; give system, user, assistant or tool");
  const Result<Role> named = one_of(kRoles, *role, place + ".role");
  if (!named) return tl::unexpected(named.error());
  ChatMessage message;
  message.role = *named;

  const bool has_content = !is_null(value.find("content"));
  if (has_content) {
    Result<std::string> text = take_content(*value.find("content"), place + ".content");
    if (!text) return tl::unexpected(text.error());
    message.content = std::move(*text);
  } else if (message.role != Role::assistant) {
    return bad(place + ".content", "missing; give a string");
  }
  Result<std::string> reasoning = read_reasoning(value, place);
  if (!reasoning) return tl::unexpected(reasoning.error());
  message.reasoning = std::move(*reasoning);
  Result<std::string> call_id = optional_string(value, "tool_call_id", place);
  if (!call_id) return tl::unexpected(call_id.error());
  message.tool_call_id = std::move(*call_id);
  if (const auto lists = read_lists(value, place, message); !lists) {
    return tl::unexpected(lists.error());
  }
  if (const JsonValue* task = value.find("task"); !is_null(task)) {
    const Result<Task> known = one_of(kTasks, *task, place + ".task");
    if (!known) return tl::unexpected(known.error());
    message.task = *known;
  }
  for (const char* key : {"wo_eos", "prefix"}) {  // the encoder's word and the API's
    const Result<bool> flag = optional_flag(value, key, place);
    if (!flag) return tl::unexpected(flag.error());
    message.continues = message.continues || *flag;
  }
  if (!has_content && message.reasoning.empty() && message.tool_calls.empty()) {
    return bad(place + ".content", "missing, and there are no tool_calls; give a string");
  }
  return message;
}

/// The schema that the top-level `response_format` of a request asks for; empty for plain text.
Result<std::string> read_response_format(const JsonValue& format) {
  const std::string place = "response_format";
  if (format.kind != Kind::object) return wrong_kind(place, format, "an object");
  const Result<std::string> type = required_string(format, "type", place);
  if (!type || *type == "text") return type ? Result<std::string>(std::string()) : type;
  if (*type == "json_object") return std::string("{\"type\": \"object\"}");
  if (*type != "json_schema") {
    return bad(place + ".type",
               fmt::format("{} is not one of text, json_object, json_schema; give one "
                           "of them",
                           shown(*type)));
  }
  const JsonValue* wrapper = format.find("json_schema");
  const JsonValue* schema = is_null(wrapper) ? nullptr : wrapper->find("schema");
  if (is_null(schema)) return bad(place + ".json_schema.schema", "missing; give the schema");
  return to_python_json(*schema);
}

/// Puts the tools and the response format of a request on its first message, or on an empty system
/// message in front of it.
Result<void> apply_request(const JsonValue& request, std::vector<ChatMessage>& messages) {
  ChatMessage wanted;
  wanted.role = Role::system;
  if (const JsonValue* tools = request.find("tools"); !is_null(tools)) {
    Result<std::vector<std::string>> read = read_tools(*tools, "tools");
    if (!read) return tl::unexpected(read.error());
    wanted.tools = std::move(*read);
  }
  if (const JsonValue* format = request.find("response_format"); !is_null(format)) {
    Result<std::string> read = read_response_format(*format);
    if (!read) return tl::unexpected(read.error());
    wanted.response_format = std::move(*read);
  }
  if (wanted.tools.empty() && wanted.response_format.empty()) return {};
  const bool has_place = !messages.empty() && (messages.front().role == Role::system ||
                                               messages.front().role == Role::developer);
  if (!has_place) {
    messages.insert(messages.begin(), std::move(wanted));
    return {};
  }
  ChatMessage& first = messages.front();
  if (!wanted.tools.empty()) {
    if (!first.tools.empty())
      return bad("tools", "given twice, also in messages[0]; leave one out");
    first.tools = std::move(wanted.tools);
  }
  if (!wanted.response_format.empty()) {
    if (!first.response_format.empty()) {
      return bad("response_format", "given twice, also in messages[0]; leave one out");
    }
    first.response_format = std::move(wanted.response_format);
  }
  return {};
}

}  // namespace

Result<std::vector<ChatMessage>> parse_chat_messages(std::string_view json,
                                                     std::string_view origin) {
  Result<JsonValue> document = parse_json(json, origin);
  if (!document) {
    return fail(ErrorCode::corrupt,
                fmt::format("reading messages of {}; correct the file", document.error().message));
  }
  return take_chat_messages(std::move(*document), origin);
}

Result<std::vector<std::string>> parse_chat_tools(std::string_view json, std::string_view origin) {
  const auto document = parse_json(json, origin);
  if (!document) {
    return fail(ErrorCode::corrupt,
                fmt::format("reading tools of {}; correct the file", document.error().message));
  }
  const JsonValue* list = document->kind == Kind::object ? document->find("tools") : &*document;
  Result<std::vector<std::string>> tools =
      list == nullptr ? bad("the object", "it has no \"tools\"; give an array of them")
                      : read_tools(*list, "tools");
  if (tools) return tools;
  return fail(tools.error().code,
              fmt::format("reading tools of {}: {}", origin, tools.error().message));
}

Result<std::vector<ChatMessage>> take_chat_messages(JsonValue document, std::string_view origin) {
  const auto with_origin = [&](Error error) {
    error.message = fmt::format("reading messages of {}: {}", origin, error.message);
    return tl::unexpected(std::move(error));
  };
  JsonValue* list = &document;
  if (document.kind == Kind::object) {
    list = document.find("messages");
    if (list == nullptr) {
      return with_origin(
          {ErrorCode::invalid_argument, "the object has no \"messages\"; give an array of them"});
    }
  }
  if (list->kind != Kind::array) {
    return with_origin(wrong_kind("messages", *list, "an array").value());
  }
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    Result<ChatMessage> message = take_message(list->items[i], fmt::format("messages[{}]", i));
    if (!message) return with_origin(message.error());
    messages.push_back(std::move(*message));
  }
  // Before a system message is put in front: the indices are those of the caller.
  if (const auto checked = check_conversation(messages, false); !checked) {
    return with_origin(checked.error());
  }
  if (document.kind == Kind::object) {
    if (const auto applied = apply_request(document, messages); !applied) {
      return with_origin(applied.error());
    }
  }
  return messages;
}

}  // namespace ingot
