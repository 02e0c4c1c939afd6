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

class LineTemplate;

/// How the lines of an input are read.
enum class BatchFormat { jsonl, text };

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

enum class BatchEndpoint { chat, completions };

/// A request may ask for as many answers to one prompt (as OpenAI's API).
inline constexpr int kMaxChoices = 128;

/// One line of a batch file, understood and checked but for what needs the model.
struct BatchRequest {
  BatchEndpoint endpoint = BatchEndpoint::chat;
  std::int64_t line = 0;
  std::string custom_id;
  std::string model;
  std::vector<ChatMessage> messages;   ///< of a chat
  std::string prompt;                  ///< of a completion: its text,
  std::vector<TokenId> prompt_tokens;  ///< or its tokens, where there are any
  Thinking thinking = Thinking::none;
  bool keep_thinking = false;
  SamplingParams sampling;
  int choices = 1;  ///< answers; each has a seed of its own
};

/// The code of a line whose custom_id an earlier one has.
inline constexpr std::string_view kDuplicateId = "duplicate_custom_id";

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
/// /v1/chat/completions or /v1/completions and a body with the fields of that endpoint that the
/// sampler knows.
/// A line over the limit, broken JSON, a wrong type, a value out of range, a field that we do not
/// know (unless ignored) and `stream: true` are errors of this line alone.
[[nodiscard]] BatchResult<BatchRequest> parse_batch_line(InputLine line,
                                                         const BatchDefaults& defaults);

/// A line is a JSON object whose fields fill a template. Its custom_id is its field custom_id or
/// id, where it has one, else "line-N". Errors are of this line alone, as above.
[[nodiscard]] BatchResult<BatchRequest> parse_template_line(InputLine line,
                                                            const BatchDefaults& defaults,
                                                            const LineTemplate& line_template);

/// A line of plain text is one user message; its custom_id is "line-N". One that holds a NUL byte,
/// or is not UTF-8, is refused.
[[nodiscard]] BatchResult<BatchRequest> parse_text_line(InputLine line,
                                                        const BatchDefaults& defaults);

/// The custom_id that the answer to a line has, or its error: what the three above say, without
/// looking at the rest of the line. nullopt where that has none.
[[nodiscard]] std::optional<std::string> custom_id_of(const InputLine& line, BatchFormat format,
                                                      bool fills_template);

}  // namespace ingot
