#pragma once

#include <array>
#include <string_view>

/// The markers of the chat format, by their text in tokenizer.json. Each must be an added token of
/// the tokenizer: that is what makes it one id. Bars are U+FF5C, underscores U+2581.
/// Source: model specification 6.1, 6.2.
namespace ingot::control {

inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkStart = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kAction = "<｜action｜>";
inline constexpr std::string_view kQuery = "<｜query｜>";
inline constexpr std::string_view kAuthority = "<｜authority｜>";
inline constexpr std::string_view kDomain = "<｜domain｜>";
inline constexpr std::string_view kTitle = "<｜title｜>";
inline constexpr std::string_view kReadUrl = "<｜read_url｜>";

inline constexpr std::array kAll = {kBos,        kEos,      kUser,  kAssistant, kLatestReminder,
                                    kThinkStart, kThinkEnd, kDsml,  kAction,    kQuery,
                                    kAuthority,  kDomain,   kTitle, kReadUrl};

}  // namespace ingot::control
