#include "src/batch/batch_request.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "src/batch/line_template.hpp"
#include "src/batch/request_fields.hpp"
#include "src/text/json_value.hpp"
#include "src/text/text_check.hpp"

namespace ingot {
namespace {

constexpr std::string_view kChatUrl = "/v1/chat/completions";
constexpr std::string_view kCompletionsUrl = "/v1/completions";
/// That the API reports for a completion's token.
constexpr int kMaxCompletionLogprobs = 5;
constexpr std::size_t kMaxCustomIdBytes = 512;
constexpr std::size_t kMaxModelBytes = 512;  // comes back in every answer

Unexpected invalid(std::string message) {
  return fail(ErrorCode::invalid_argument, std::move(message));
}

/// Runs each step in turn; the first error is the result.
template <class... Steps>
Result<void> in_turn(Steps&&... steps) {
  Result<void> result;
  const auto go = [&](auto&& step) {
    result = step();
    return result.has_value();
  };
  (void)(go(steps) && ...);
  return result;
}

/// Moves a field's value to where it goes, where the field is there.
template <class T, class Target>
Result<void> take(Result<std::optional<T>> field, Target& target) {
  if (!field) return Unexpected(field.error());
  if (*field) target = static_cast<Target>(**field);
  return {};
}
template <class T>
Result<void> take(Result<std::optional<T>> field, std::optional<T>& target) {
  if (!field) return Unexpected(field.error());
  if (*field) target = std::move(**field);
  return {};
}

// ---- body fields ---------------------------------------------------------------------------

Result<void> take_stop(RequestFields& body, SamplingParams& sampling) {
  const JsonValue* stop = body.any("stop");
  if (stop == nullptr) return {};
  sampling.stop.clear();
  if (stop->kind == JsonValue::Kind::string) {
    sampling.stop.push_back(stop->text);
    return {};
  }
  if (stop->kind != JsonValue::Kind::array) {
    return invalid("body.stop must be a string or an array of strings");
  }
  for (const JsonValue& item : stop->items) {
    if (item.kind != JsonValue::Kind::string) {
      return invalid(
          fmt::format("body.stop must hold strings only, not {}", json_kind_name(item.kind)));
    }
    sampling.stop.push_back(item.text);
  }
  return {};
}

Result<void> take_stop_ids(RequestFields& body, SamplingParams& sampling) {
  const auto ids = body.of_kind("stop_token_ids", JsonValue::Kind::array);
  if (!ids) return Unexpected(ids.error());
  if (*ids == nullptr) return {};
  for (const JsonValue& item : (*ids)->items) {
    const auto id = json_integer(item);
    if (!id || *id < 0 || *id > INT32_MAX) {
      return invalid("body.stop_token_ids must hold token ids only");
    }
    sampling.stop_ids.push_back(static_cast<TokenId>(*id));
  }
  return {};
}

Result<void> take_logit_bias(RequestFields& body, SamplingParams& sampling) {
  const auto bias = body.of_kind("logit_bias", JsonValue::Kind::object);
  if (!bias) return Unexpected(bias.error());
  if (*bias == nullptr) return {};
  for (std::size_t i = 0; i < (*bias)->keys.size(); ++i) {
    const std::string& key = (*bias)->keys[i];
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size() || id < 0) {
      return invalid(fmt::format("body.logit_bias: {} is not a token id", shown(key)));
    }
    const auto value = json_number((*bias)->items[i]);
    if (!value) return invalid(fmt::format("body.logit_bias: the bias of {} is not a number", id));
    sampling.logit_bias.emplace_back(id, *value);
  }
  return {};
}

Result<void> take_lengths(RequestFields& body, SamplingParams& sampling) {
  std::optional<std::int64_t> old_name, new_name;
  auto taken = in_turn([&] { return take(body.integer("max_tokens"), old_name); },
                       [&] { return take(body.integer("max_completion_tokens"), new_name); });
  if (!taken) return taken;
  if (old_name && new_name && *old_name != *new_name) {
    return invalid(
        fmt::format("body.max_tokens is {} but body.max_completion_tokens is {}; give one",
                    *old_name, *new_name));
  }
  if (old_name) sampling.max_tokens = old_name;
  if (new_name) sampling.max_tokens = new_name;
  return {};
}

Result<void> take_logprobs(RequestFields& body, SamplingParams& sampling) {
  std::optional<bool> wanted;
  std::optional<std::int64_t> top;
  auto taken = in_turn([&] { return take(body.boolean("logprobs"), wanted); },
                       [&] { return take(body.integer("top_logprobs"), top); });
  if (!taken) return taken;
  if (top && *top != 0 && !wanted.value_or(false)) {
    return invalid("body.top_logprobs needs body.logprobs to be true");
  }
  if (top && (*top < 0 || *top > kMaxTopLogprobs)) {
    return invalid(
        fmt::format("body.top_logprobs is {}: it must be from 0 to {}", *top, kMaxTopLogprobs));
  }
  if (wanted.value_or(false)) sampling.top_logprobs = static_cast<int>(top.value_or(0));
  return {};
}

Result<void> take_sampling(RequestFields& body, SamplingParams& sampling) {
  std::optional<std::int64_t> top_k, seed;
  auto taken = in_turn(
      [&] { return take(body.number("temperature"), sampling.temperature); },
      [&] { return take(body.number("top_p"), sampling.top_p); },
      [&] { return take(body.integer("top_k"), top_k); },
      [&] { return take(body.number("min_p"), sampling.min_p); },
      [&] { return take(body.number("repetition_penalty"), sampling.repetition_penalty); },
      [&] { return take(body.number("presence_penalty"), sampling.presence_penalty); },
      [&] { return take(body.number("frequency_penalty"), sampling.frequency_penalty); },
      [&] { return take(body.integer("seed"), seed); },
      [&] { return take(body.boolean("ignore_eos"), sampling.ignore_eos); },
      [&] { return take(body.integer("thinking_budget"), sampling.thinking_budget); },
      [&] { return take_stop(body, sampling); }, [&] { return take_stop_ids(body, sampling); },
      [&] { return take_logit_bias(body, sampling); },
      [&] { return take_lengths(body, sampling); });
  if (!taken) return taken;
  if (top_k) {
    // -1 is how other servers spell "off".
    if (*top_k < -1 || *top_k > INT32_MAX) {
      return invalid(fmt::format("body.top_k is {}: it must be 0 (off) or more", *top_k));
    }
    sampling.top_k = static_cast<int>(std::max<std::int64_t>(*top_k, 0));
  }
  if (seed) sampling.seed = static_cast<std::uint64_t>(*seed);
  return {};
}

Result<void> take_thinking(RequestFields& body, const BatchDefaults& defaults,
                           BatchRequest& request) {
  std::optional<std::string> effort;
  if (auto taken = take(body.string("reasoning_effort"), effort); !taken) return taken;
  std::optional<Thinking> asked;
  if (effort) {
    const auto known = effort_of_request(*effort, defaults.efforts);
    if (!known) return invalid("body.reasoning_effort: " + known.error().message);
    asked = *known;
  }
  const auto thinking = body.of_kind("thinking", JsonValue::Kind::object);
  if (!thinking) return Unexpected(thinking.error());
  if (*thinking != nullptr) {
    RequestFields fields(**thinking, "body.thinking.");
    std::optional<std::string> type;
    if (auto taken = take(fields.string("type"), type); !taken) return taken;
    if (auto known = fields.no_others(); !known && !defaults.ignore_unknown) return known;
    if (type == "disabled") {
      asked = Thinking::none;
    } else if (type == "enabled") {
      if (asked == Thinking::none) {
        return invalid(
            "body.reasoning_effort is \"none\" and body.thinking.type is \"enabled\": these "
            "contradict each other; leave out one of them");
      }
      if (!asked) {
        asked = defaults.thinking == Thinking::none ? Thinking::high : defaults.thinking;
      }
    } else {
      return invalid("body.thinking.type must be \"enabled\" or \"disabled\"");
    }
  }
  if (asked) request.thinking = *asked;
  return {};
}

/// Fields that change nothing here, and fields whose one value we can serve.
Result<void> take_formalities(RequestFields& body, BatchRequest& request) {
  for (const std::string_view name : {"user", "metadata", "store", "service_tier",
                                      "safety_identifier", "prompt_cache_key", "stream_options"}) {
    body.any(name);
  }
  std::optional<bool> stream;
  std::optional<std::int64_t> n;
  auto taken = in_turn([&] { return take(body.boolean("stream"), stream); },
                       [&] { return take(body.integer("n"), n); });
  if (!taken) return taken;
  if (stream.value_or(false))
    return invalid("body.stream is true: a batch cannot stream; leave it out");
  if (n.value_or(1) < 1 || n.value_or(1) > kMaxChoices) {
    return invalid(fmt::format("body.n is {}: it must be from 1 to {}", *n, kMaxChoices));
  }
  request.choices = static_cast<int>(n.value_or(1));
  return {};
}

Result<void> take_parallel_calls(RequestFields& body) {
  std::optional<bool> parallel;
  if (auto taken = take(body.boolean("parallel_tool_calls"), parallel); !taken) return taken;
  if (parallel.value_or(true)) return {};
  return invalid(
      "body.parallel_tool_calls is false: the model cannot be held to one call; leave it out");
}

/// Moves a field of the object that `fields` reads into `document`.
void move_field(std::string name, const JsonValue* field, JsonValue& object, JsonValue& document) {
  const auto place = static_cast<std::size_t>(field - object.items.data());
  document.keys.push_back(std::move(name));
  document.items.push_back(std::exchange(object.items[place], {}));
}

/// The part of the body that is a conversation; its values are given up.
Result<JsonValue> take_document(RequestFields& body, JsonValue& object) {
  JsonValue document;
  document.kind = JsonValue::Kind::object;
  const auto messages = body.of_kind("messages", JsonValue::Kind::array);
  if (!messages) return Unexpected(messages.error());
  if (*messages == nullptr) return invalid("body.messages is missing: give an array of them");
  if ((*messages)->items.empty()) return invalid("body.messages is empty: give at least one");
  move_field("messages", *messages, object, document);

  const JsonValue* choice = body.any("tool_choice");
  const bool no_tools = choice != nullptr && choice->text == "none";
  if (choice != nullptr && !no_tools && choice->text != "auto") {
    return invalid(
        "body.tool_choice must be \"auto\" or \"none\": the model cannot be forced to call");
  }
  const auto tools = body.of_kind("tools", JsonValue::Kind::array);
  if (!tools) return Unexpected(tools.error());
  if (*tools != nullptr && !no_tools && !(*tools)->items.empty()) {
    move_field("tools", *tools, object, document);
  }
  const auto format = body.of_kind("response_format", JsonValue::Kind::object);
  if (!format) return Unexpected(format.error());
  // Schemas are asked for in the prompt, as the official encoder does; nothing holds the model to
  // it.
  if (*format != nullptr) move_field("response_format", *format, object, document);
  return document;
}

Result<void> take_conversation(RequestFields& body, JsonValue& object,
                               const BatchDefaults& defaults, BatchRequest& request) {
  auto document = take_document(body, object);
  if (!document) return Unexpected(document.error());
  auto messages = take_chat_messages(std::move(*document), "body");
  if (!messages) return Unexpected(messages.error());
  request.messages = std::move(*messages);
  if (defaults.system.empty()) return {};
  ChatMessage& first = request.messages.front();
  if (first.role != Role::system) {
    ChatMessage system;
    system.role = Role::system;
    system.content = defaults.system;
    request.messages.insert(request.messages.begin(), std::move(system));
  } else if (first.content.empty()) {
    first.content = defaults.system;  // made for the tools alone
  }
  return {};
}

Result<void> take_chat_body(RequestFields& body, JsonValue& object, const BatchDefaults& defaults,
                            BatchRequest& request) {
  return in_turn([&] { return take_conversation(body, object, defaults, request); },
                 [&] { return take_logprobs(body, request.sampling); },
                 [&] { return take_thinking(body, defaults, request); },
                 [&] { return take_parallel_calls(body); });
}

/// The prompt of a completion: a text, or token ids.
Result<void> take_prompt(RequestFields& body, BatchRequest& request) {
  const JsonValue* prompt = body.any("prompt");
  if (prompt == nullptr) return invalid("body.prompt is missing: give a text or token ids");
  if (prompt->kind == JsonValue::Kind::string) {
    request.prompt = prompt->text;
    return {};
  }
  if (prompt->kind != JsonValue::Kind::array || prompt->items.empty()) {
    return invalid("body.prompt must be a string or an array of token ids");
  }
  for (const JsonValue& item : prompt->items) {
    const auto id = json_integer(item);
    if (!id || *id < 0 || *id > INT32_MAX) {
      return invalid(
          "body.prompt must be a string or an array of token ids: several prompts are several "
          "lines");
    }
    request.prompt_tokens.push_back(static_cast<TokenId>(*id));
  }
  return {};
}

Result<void> take_completion_body(RequestFields& body, BatchRequest& request) {
  std::optional<std::int64_t> logprobs, best_of;
  std::optional<bool> echo;
  std::optional<std::string> suffix;
  auto taken = in_turn([&] { return take_prompt(body, request); },
                       [&] { return take(body.integer("logprobs"), logprobs); },
                       [&] { return take(body.integer("best_of"), best_of); },
                       [&] { return take(body.boolean("echo"), echo); },
                       [&] { return take(body.string("suffix"), suffix); });
  if (!taken) return taken;
  if (echo.value_or(false))
    return invalid("body.echo is true: a completion is what follows alone; leave it out");
  if (!suffix.value_or("").empty())
    return invalid("body.suffix is given: the model cannot insert; leave it out");
  if (logprobs && (*logprobs < 0 || *logprobs > kMaxCompletionLogprobs)) {
    return invalid(fmt::format("body.logprobs is {}: it must be from 0 to {}", *logprobs,
                               kMaxCompletionLogprobs));
  }
  if (best_of && *best_of != request.choices) {
    return invalid(
        fmt::format("body.best_of is {}: it must be body.n, as none are dropped", *best_of));
  }
  if (logprobs) request.sampling.top_logprobs = static_cast<int>(*logprobs);
  request.thinking = Thinking::none;
  return {};
}

Result<void> take_body(JsonValue& object, const BatchDefaults& defaults, BatchRequest& request) {
  RequestFields body(object, "body.");
  auto taken = in_turn([&] { return take_formalities(body, request); },
                       [&] {
                         return request.endpoint == BatchEndpoint::chat
                                    ? take_chat_body(body, object, defaults, request)
                                    : take_completion_body(body, request);
                       },
                       [&] { return take_sampling(body, request.sampling); },
                       [&] { return take(body.string("model"), request.model); });
  if (!taken) return taken;
  if (request.model.size() > kMaxModelBytes) {
    return invalid(fmt::format("body.model has {} bytes: at most {} are allowed",
                               request.model.size(), kMaxModelBytes));
  }
  return defaults.ignore_unknown ? Result<void>() : body.no_others();
}

// ---- the line ------------------------------------------------------------------------------

std::uint64_t seed_of(std::string_view custom_id, std::uint64_t base) {
  return XXH3_64bits_withSeed(custom_id.data(), custom_id.size(), base);
}

BatchRequest with_defaults(const InputLine& line, const BatchDefaults& defaults,
                           std::string custom_id) {
  BatchRequest request;
  request.line = line.number;
  request.model = defaults.model;
  request.thinking = defaults.thinking;
  request.keep_thinking = defaults.keep_thinking;
  request.sampling = defaults.sampling;
  request.sampling.seed = seed_of(custom_id, defaults.seed);
  request.custom_id = std::move(custom_id);
  return request;
}

using LineFailure = tl::unexpected<BatchError>;

LineFailure line_failure(const InputLine& line, std::string code, std::string message,
                         std::optional<std::string> custom_id = std::nullopt) {
  return LineFailure(
      BatchError{line.number, std::move(custom_id), std::move(code), std::move(message)});
}

std::string numbered_id(std::int64_t line) {
  return fmt::format("line-{}", line);
}

/// Of an object whose fields fill a template.
std::string template_id(const JsonValue& fields, std::int64_t line) {
  for (const std::string_view name : {"custom_id", "id"}) {
    const JsonValue* id = fields.find(name);
    if (id != nullptr && !id->text.empty() && id->text.size() <= kMaxCustomIdBytes) return id->text;
  }
  return numbered_id(line);
}

LineFailure too_long(const InputLine& line) {
  return line_failure(
      line, "line_too_long",
      fmt::format("the line is longer than {} MiB and was not read; make several requests of it",
                  kMaxLineBytes >> 20));
}

}  // namespace

BatchResult<BatchRequest> parse_batch_line(InputLine line, const BatchDefaults& defaults) {
  if (line.too_long) return too_long(line);
  auto parsed = parse_json(line.text, "the line");
  if (!parsed) return line_failure(line, "invalid_json", parsed.error().message);
  line.text = {};  // a long line is not kept beside its values
  if (parsed->kind != JsonValue::Kind::object) {
    return line_failure(
        line, "invalid_request",
        fmt::format("the line must be a JSON object with custom_id, url and body, not "
                    "{}",
                    json_kind_name(parsed->kind)));
  }
  RequestFields fields(*parsed, "");
  const auto custom_id = fields.string("custom_id");
  if (!custom_id) return line_failure(line, "invalid_request", custom_id.error().message);
  const auto refuse = [&](std::string message) {
    return line_failure(line, "invalid_request", std::move(message), *custom_id);
  };
  if (!*custom_id || (*custom_id)->empty())
    return refuse("custom_id is missing: give each line one of its own");
  if ((*custom_id)->size() > kMaxCustomIdBytes) {
    return line_failure(line, "invalid_request",
                        fmt::format("custom_id has {} bytes: at most {} are allowed",
                                    (*custom_id)->size(), kMaxCustomIdBytes));
  }
  std::string method = "POST", url;
  auto taken = in_turn([&] { return take(fields.string("method"), method); },
                       [&] { return take(fields.string("url"), url); });
  if (!taken) return refuse(taken.error().message);
  if (method != "POST") return refuse(fmt::format("method is {}: it must be POST", shown(method)));
  if (url != kChatUrl && url != kCompletionsUrl) {
    return refuse(fmt::format("url is {}: it must be {} or {}",
                              url.empty() ? "missing" : shown(url), kChatUrl, kCompletionsUrl));
  }
  const auto body = fields.of_kind("body", JsonValue::Kind::object);
  if (!body) return refuse(body.error().message);
  if (*body == nullptr) return refuse("body is missing: give the request there");
  if (!defaults.ignore_unknown) {
    if (auto known = fields.no_others(); !known) return refuse(known.error().message);
  }
  BatchRequest request = with_defaults(line, defaults, **custom_id);
  if (url == kCompletionsUrl) request.endpoint = BatchEndpoint::completions;
  JsonValue& object = parsed->items[static_cast<std::size_t>(*body - parsed->items.data())];
  if (auto read = take_body(object, defaults, request); !read) return refuse(read.error().message);
  return request;
}

BatchResult<BatchRequest> parse_template_line(InputLine line, const BatchDefaults& defaults,
                                              const LineTemplate& line_template) {
  if (line.too_long) return too_long(line);
  const auto fields = parse_json(line.text, "the line");
  if (!fields) return line_failure(line, "invalid_json", fields.error().message);
  if (fields->kind != JsonValue::Kind::object) {
    return line_failure(line, "invalid_request",
                        fmt::format("the line must be a JSON object whose fields fill the "
                                    "template, not {}",
                                    json_kind_name(fields->kind)));
  }
  const std::string custom_id = template_id(*fields, line.number);
  const auto refuse = [&](std::string message) {
    return line_failure(line, "invalid_request", std::move(message), custom_id);
  };
  auto body = line_template.fill(*fields);
  if (!body) return refuse(body.error().message);
  BatchRequest request = with_defaults(line, defaults, custom_id);
  if (auto read = take_body(*body, defaults, request); !read) return refuse(read.error().message);
  return request;
}

BatchResult<BatchRequest> parse_text_line(InputLine line, const BatchDefaults& defaults) {
  if (line.too_long) return too_long(line);
  if (const auto checked = check_plain_text(line.text, "the line"); !checked) {
    return line_failure(line, "invalid_text", checked.error().message, numbered_id(line.number));
  }
  BatchRequest request = with_defaults(line, defaults, numbered_id(line.number));
  ChatMessage message;
  if (!defaults.system.empty()) {
    message.role = Role::system;
    message.content = defaults.system;
    request.messages.push_back(message);
  }
  message.role = Role::user;
  message.content = std::move(line.text);
  request.messages.push_back(std::move(message));
  return request;
}

std::optional<std::string> custom_id_of(const InputLine& line, BatchFormat format,
                                        bool fills_template) {
  if (line.too_long) return std::nullopt;
  if (format == BatchFormat::text) return numbered_id(line.number);
  const auto parsed = parse_json(line.text, "the line");
  if (!parsed || parsed->kind != JsonValue::Kind::object) return std::nullopt;
  if (fills_template) return template_id(*parsed, line.number);
  const JsonValue* id = parsed->find("custom_id");
  if (id == nullptr || id->kind != JsonValue::Kind::string) return std::nullopt;
  if (id->text.size() > kMaxCustomIdBytes) return std::nullopt;
  return id->text;
}

}  // namespace ingot
