#pragma once

#include <string>

#include "src/batch/batch_request.hpp"
#include "src/schedule/generation.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// What of a request its answer repeats.
struct AnswerHead {
  std::int64_t line = 0;
  std::string custom_id;
  std::string model;
};

/// One line of OpenAI's batch output for an answer, with its LF. Ids are made from the line's
/// number and `created` is 0, so that the same input gives the same file.
std::string answer_line(const AnswerHead& head, const GenerationResult& result,
                        const Tokenizer& tokenizer);
/// The same for a line that could not be answered.
std::string error_line(const BatchError& error);

/// An answer alone, on one line: LF is written \n, CR \r, a backslash \\.
std::string text_line(std::string_view content);

}  // namespace ingot
