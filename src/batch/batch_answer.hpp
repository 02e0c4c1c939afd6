#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/batch/batch_request.hpp"
#include "src/schedule/generation.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// What of a request its answer repeats.
struct AnswerHead {
  std::int64_t line = 0;
  std::string custom_id;
  std::string model;
  BatchEndpoint endpoint = BatchEndpoint::chat;
};

/// One line of OpenAI's batch output for an answer, with its LF. Ids are made from the line's
/// number and `created` is 0, so that the same input gives the same file.
/// @param choices  at least one, all of one prompt
std::string answer_line(const AnswerHead& head, std::span<const GenerationResult> choices,
                        const Tokenizer& tokenizer);
/// The same for a line that could not be answered.
std::string error_line(const BatchError& error);

/// What a line of such output says of itself.
struct AnswerLine {
  std::int64_t line = 0;                 ///< of the input
  std::optional<std::string> custom_id;  ///< a line that was never understood has none
  bool failed = false;
  bool repeats = false;  ///< it failed as an earlier line has its custom_id
};
/// nullopt for what neither of the two has written.
[[nodiscard]] std::optional<AnswerLine> parse_answer_line(std::string_view line);

/// An answer alone, on one line: LF is written \n, CR \r, a backslash \\.
std::string text_line(std::string_view content);

}  // namespace ingot
