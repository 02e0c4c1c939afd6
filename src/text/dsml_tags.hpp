#pragma once

#include <string_view>

/// The tags of a tool-call block, as far as they are fixed text. Attributes follow an opening tag's
/// name: ` name="N">`, and of a parameter ` name="K" string="true|false">`.
/// Source: model specification 6.2.
namespace ingot::dsml {

inline constexpr std::string_view kBlockOpen = "<｜DSML｜tool_calls";
inline constexpr std::string_view kBlockClose = "</｜DSML｜tool_calls>";
inline constexpr std::string_view kInvokeOpen = "<｜DSML｜invoke";
inline constexpr std::string_view kInvokeClose = "</｜DSML｜invoke>";
inline constexpr std::string_view kParameterOpen = "<｜DSML｜parameter";
inline constexpr std::string_view kParameterClose = "</｜DSML｜parameter>";
inline constexpr std::string_view kName = " name=\"";
inline constexpr std::string_view kString = "\" string=\"true\">";
inline constexpr std::string_view kNotString = "\" string=\"false\">";
inline constexpr std::string_view kNameEnd = "\">";

}  // namespace ingot::dsml
