#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/batch/line_reader.hpp"
#include "src/sampler/sampling_params.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/chat_message.hpp"

namespace ingot {

/// What a request takes where its line says nothing.
struct BatchDefaults {
  SamplingParams sampling;
  std::uint64_t seed = 0;  ///< each line's own seed is made from this and its custom_id
  Thinking thinking = Thinking::none;
  bool keep_thinking = false;
  std::string system;  ///< goes before conversations without a system message
  std::string model;   ///< name in the answers
  EffortTable efforts = EffortTable::april;
  bool ignore_unknown = false;
};

/// One line of a batch file, understood and checked but for what needs the model.
struct BatchRequest {
  std::int64_t line = 0;
  std::string custom_id;
  std::string model;
  std::vector<ChatMessage> messages;
  Thinking thinking = Thinking::none;
  bool keep_thinking = false;
  SamplingParams sampling;
};

/// Why a line is not answered.
struct BatchError {
  std::int64_t line = 0;
  std::optional<std::string> custom_id;  ///< if the line got that far
  std::string code;                      ///< "invalid_json", "invalid_request" …
  std::string message;
};

template <class T>
using BatchResult = tl::expected<T, BatchError>;

/// Understands one line of OpenAI's batch format: custom_id, method POST, url
/// /v1/chat/completions and a body with the fields of that endpoint that the sampler knows.
/// A line over the limit, broken JSON, a wrong type, a value out of range, a field that we do not
/// know (unless ignored) and `stream: true` are errors of this line alone.
[[nodiscard]] BatchResult<BatchRequest> parse_batch_line(InputLine line,
                                                         const BatchDefaults& defaults);

/// A line of plain text is one user message; its custom_id is "line-N".
[[nodiscard]] BatchResult<BatchRequest> parse_text_line(InputLine line,
                                                        const BatchDefaults& defaults);

}  // namespace ingot
