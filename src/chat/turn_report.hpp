#pragma once

#include <string>

#include "src/chat/chat_session.hpp"

namespace ingot {

/// Tokens a second after the first one; 0 where there is nothing to measure.
double decode_tokens_per_s(const TurnStats& stats);

/// What one answer cost, on one line for people.
std::string turn_line(const TurnStats& stats);

/// The same as one JSON object, without a line's end.
std::string turn_json(const TurnStats& stats);

/// What all answers of a chat cost, as one JSON object, without a line's end.
std::string totals_json(int answers, const TurnStats& totals);

/// An answer as one JSON object: a message in the OpenAI chat format, with `finish_reason` and
/// `stats` beside it.
std::string answer_json(const ChatMessage& answer, const TurnStats& stats);

/// From this share of the context on, a conversation's end is in sight.
inline constexpr double kContextWarning = 0.8;

}  // namespace ingot
