#pragma once

#include <string_view>

/// What the chat encoder writes word for word. Source: model specification 6.2, 6.4.
namespace ingot::literals {

inline constexpr std::string_view kToolsBeforeSchemas = R"lit(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)lit";

inline constexpr std::string_view kToolsAfterSchemas = R"lit(

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
)lit";

inline constexpr std::string_view kResponseFormat = R"lit(## Response Format:

You MUST strictly adhere to the following schema to reply:
)lit";

/// Effort max of April's table, high of 0731's.
inline constexpr std::string_view kAbsoluteMaximum =
    R"lit(Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

)lit";

/// Effort max of 0731's table.
inline constexpr std::string_view kBeyondMaximum =
    R"lit(Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

)lit";

}  // namespace ingot::literals
