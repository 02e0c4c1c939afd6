// What a chat reads from files and writes to them: system message, attachments, tools, exports.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/base/atomic_publish.hpp"
#include "src/chat/file_argument.hpp"
#include "src/chat/quoted_text.hpp"
#include "src/chat/transcript.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// A file that a person names while the chat runs: what may never end, or never begin, is refused.
Result<std::string> read_named_file(const std::filesystem::path& file, std::size_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
      !std::filesystem::is_directory(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: this is no regular file; name one", file.string()));
  }
  return read_text_file(file == "-" ? "./-" : file, max_bytes);
}

/// The same of one that is to be text. `attempt` is what the error says was attempted.
Result<std::string> read_named_text(std::string_view attempt, const std::filesystem::path& file) {
  auto text = read_named_file(file, kMaxLineBytes);
  if (!text || (is_utf8(*text) && text->find('\0') == std::string::npos)) return text;
  return fail(
      ErrorCode::unsupported,
      fmt::format("{} {}: it is no text in UTF-8 (byte {} is not); convert it, or name a text",
                  attempt, file.string(), std::min(valid_utf8_prefix(*text), text->find('\0'))));
}

}  // namespace

void ChatLoop::set_system(std::string_view text) {
  if (text.empty()) {
    const std::string now(session().system());
    return tell(now.empty() ? "There is no system message.\n" : now + "\n");
  }
  // In quotes it is the text, whatever it looks like.
  std::string changed = text == "none" ? std::string() : unquoted(text);
  if (!text.starts_with('@') && !is_utf8(changed)) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("/system: {} is no text in UTF-8 (byte {} is not)",
                                 cut_utf8(text, kMostShown), valid_utf8_prefix(changed))});
  }
  if (text.starts_with('@')) {
    auto read = read_named_text("reading the system message from",
                                file_argument(text.substr(1), options_.environment.home));
    if (!read) return complain(read.error());
    changed = std::move(*read);
    if (changed.ends_with('\n')) changed.pop_back();
  }
  now_->settings.system = std::move(changed);
  session().set_system(now_->settings.system);
  say(now_->settings.system.empty() ? "No system message any more." : "The system message is set.");
}

void ChatLoop::attach(std::string_view file) {
  if (file.empty()) {
    const bool had = !std::exchange(now_->attached, {}).empty();
    return say(had ? "Nothing is attached any more." : "Nothing is attached.");
  }
  const std::filesystem::path path = file_argument(file, options_.environment.home);
  const auto text = read_named_text("attaching", path);
  if (!text) return complain(text.error());
  now_->attached += attachment(path.filename().string(), *text);
  say(fmt::format("{} goes in front of the next message: {}.", path.filename().string(),
                  counted(model_.tokenizer->encode(*text).size(), "token")));
}

void ChatLoop::export_to(std::string_view file) {
  const std::filesystem::path path = file_argument(file, options_.environment.home);
  const auto& messages = session().messages();
  std::string text;
  if (path.extension() == ".md") {
    text = as_markdown(messages);
  } else if (path.extension() == ".jsonl") {
    text = as_json_lines(messages);
  } else {
    return complain({ErrorCode::invalid_argument,
                     "/export: the file's name must end in .md (Markdown) or .jsonl (a message a "
                     "line)"});
  }
  std::error_code error;
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), error)) {
    return complain(
        {ErrorCode::not_found, fmt::format("exporting to {}: there is no folder {}", path.string(),
                                           path.parent_path().string())});
  }
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("exporting to {}: the file is there already; name another one",
                                 path.string())});
  }
  if (auto written = publish_file(path, text); !written) return complain(written.error());
  say(fmt::format("Written to {}: {}.", path.string(), counted(messages.size(), "message")));
}

void ChatLoop::tool(std::string_view file) {
  if (file.empty()) {
    const auto& tools = session().options().tools;
    if (tools.empty()) return say("The model may call nothing.");
    for (const std::string& each : tools)
      tell(each + "\n");
    return;
  }
  std::vector<std::string> tools;
  if (file != "none") {
    const std::filesystem::path path = file_argument(file, options_.environment.home);
    const auto json = read_named_file(path, kMaxMessagesBytes);
    if (!json) return complain(json.error());
    auto parsed = parse_chat_tools(*json, path.string());
    if (!parsed) return complain(parsed.error());
    tools = std::move(*parsed);
  }
  const std::size_t count = tools.size();
  session().set_tools(std::move(tools));
  say(count == 0 ? "The model may call nothing."
                 : fmt::format("The model may call {}.", counted(count, "function")));
}

}  // namespace ingot
