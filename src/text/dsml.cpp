#include "src/text/dsml.hpp"

#include <fmt/format.h>

#include "src/text/chat_literals.hpp"
#include "src/text/dsml_tags.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

void write_parameter(PromptBuilder& prompt, std::string_view name, const JsonValue& value) {
  const bool is_string = value.kind == JsonValue::Kind::string;
  prompt.control(dsml::kParameterOpen);
  prompt.control(dsml::kName);
  prompt.text(name);
  prompt.control(is_string ? dsml::kString : dsml::kNotString);
  prompt.text(is_string ? value.text : to_python_json(value));
  prompt.control(dsml::kParameterClose);
}

void write_parameters(PromptBuilder& prompt, const ToolCall& call) {
  // The model wrote these, and the official encoder reads them with Python's json module.
  const Result<JsonValue> arguments =
      parse_json(call.arguments, "arguments", RepeatedKeys::last_wins);
  if (!arguments || arguments->kind != JsonValue::Kind::object) {
    write_parameter(prompt, "arguments", {JsonValue::Kind::string, false, call.arguments, {}, {}});
    return;
  }
  for (std::size_t i = 0; i < arguments->keys.size(); ++i) {
    if (i > 0) prompt.control("\n");
    write_parameter(prompt, arguments->keys[i], arguments->items[i]);
  }
}

}  // namespace

void PromptBuilder::append(std::string_view text, bool is_control) {
  if (text.empty()) return;
  if (prompt_.pieces.empty() || prompt_.pieces.back().is_control != is_control) {
    prompt_.pieces.push_back({{}, is_control});
  }
  prompt_.pieces.back().text += text;
}

Result<void> write_tools(PromptBuilder& prompt, std::span<const std::string> tools) {
  prompt.control(literals::kToolsBeforeSchemas);
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Result<JsonValue> schema = parse_json(tools[i], fmt::format("tools[{}]", i));
    if (!schema || schema->kind != JsonValue::Kind::object) {
      return fail(ErrorCode::invalid_argument, schema ? fmt::format("tools[{}]: {}, not an object",
                                                                    i, json_kind_name(schema->kind))
                                                      : schema.error().message);
    }
    if (i > 0) prompt.control("\n");
    prompt.text(to_python_json(*schema));
  }
  prompt.control(literals::kToolsAfterSchemas);
  return {};
}

void write_tool_calls(PromptBuilder& prompt, std::span<const ToolCall> calls) {
  prompt.control(dsml::kBlockOpen);
  prompt.control(">\n");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) prompt.control("\n");
    prompt.control(dsml::kInvokeOpen);
    prompt.control(dsml::kName);
    prompt.text(calls[i].name);
    prompt.control(dsml::kNameEnd);
    prompt.control("\n");
    write_parameters(prompt, calls[i]);
    prompt.control("\n");
    prompt.control(dsml::kInvokeClose);
  }
  prompt.control("\n");
  prompt.control(dsml::kBlockClose);
}

}  // namespace ingot
