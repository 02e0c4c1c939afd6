// Any bytes as a line of a batch file: refused with a reason that makes a line of valid JSON, or a
// request whose sampling parameters can be judged and whose conversation can be rendered or not. As
// a line of a batch's output: no answer, or one that says which line it is of.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "src/batch/batch_answer.hpp"
#include "src/batch/batch_request.hpp"
#include "src/text/json_value.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ingot::BatchDefaults defaults;
  defaults.system = "system";
  defaults.ignore_unknown = size % 2 == 1;
  defaults.efforts = size % 3 == 0 ? ingot::EffortTable::v0731 : ingot::EffortTable::april;
  const auto answer = ingot::parse_answer_line(text);
  if (answer && answer->line < 1) std::abort();
  const auto request = ingot::parse_batch_line({1, text, false}, defaults);
  // What a resumed run knows the line by.
  const auto id = ingot::custom_id_of({1, text, false}, ingot::BatchFormat::jsonl, false);
  if (id != (request ? std::optional(request->custom_id) : request.error().custom_id)) std::abort();
  if (!request) {
    if (request.error().message.empty() || request.error().code.empty()) std::abort();
    const std::string line = ingot::error_line(request.error());
    if (line.find('\n') != line.size() - 1) std::abort();
    if (!ingot::parse_json(line, "our own line")) std::abort();
    const auto own = ingot::parse_answer_line(line);
    if (!own || !own->failed || own->line != 1 || own->custom_id != request.error().custom_id) {
      std::abort();
    }
    return 0;
  }
  const bool chat = request->endpoint == ingot::BatchEndpoint::chat;
  if (request->custom_id.empty() || request->messages.empty() == chat) std::abort();
  if (request->choices < 1) std::abort();
  constexpr int kVocabulary = 1000;
  if (const auto valid = ingot::validate(request->sampling, kVocabulary);
      !valid && valid.error().message.empty()) {
    std::abort();
  }
  if (!chat) return 0;
  ingot::ChatEncodingOptions encoding;
  encoding.thinking = request->thinking;
  encoding.efforts = defaults.efforts;
  const auto prompt = ingot::render_chat(request->messages, encoding);
  if (!prompt && prompt.error().message.empty()) std::abort();
  return 0;
}
