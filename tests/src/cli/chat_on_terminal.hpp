#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/atomic_publish.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/pty_program.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

namespace ingot::test {

inline constexpr std::string_view kPrompt = ">>> ";
inline constexpr std::string_view kCtrlC = "\x03";
inline constexpr std::string_view kCtrlD = "\x04";
inline constexpr std::string_view kUp = "\x1b[A";

/// What /tokens says of a text, up to the ids.
inline std::string counted_tokens(std::string_view text) {
  const std::size_t count = small_tokenizer().encode(text).size();
  return std::to_string(count) + (count == 1 ? " token: " : " tokens: ");
}

/// `ingot chat` on a terminal, with a home of its own, waiting for its first message. Answers are
/// greedy and of four tokens unless told otherwise; --stats makes them countable.
struct ChatOnTerminal {
  explicit ChatOnTerminal(std::vector<std::string> more = {}, PtyOptions options = {},
                          const std::filesystem::path& model = tiny_model(),
                          const std::filesystem::path& state_home = {})
      : state(state_home.empty() ? home.path() : state_home),
        program(arguments(model, std::move(more)), with_home(std::move(options))) {
    REQUIRE(program.wait_for(kPrompt));
  }

  static std::vector<std::string> arguments(const std::filesystem::path& model,
                                            std::vector<std::string> more) {
    std::vector<std::string> out{"chat", "--model",       model, "--device",
                                 "cpu",  "--temperature", "0",   "--stats"};
    if (std::find(more.begin(), more.end(), "--max-tokens") == more.end()) {
      more.insert(more.end(), {"--max-tokens", "4"});
    }
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  PtyOptions with_home(PtyOptions options) const {
    options.environment.push_back("XDG_STATE_HOME=" + state.string());
    return options;
  }

  /// Types a line and waits for the next prompt; returns what came in between, colours and cursor
  /// movements included.
  std::string enter(std::string_view line) {
    const std::size_t from = program.out().size();
    program.send(std::string(line) + "\r");
    REQUIRE(program.wait_for("\r\n"));  // the line is handed over
    REQUIRE(program.wait_for(kPrompt));
    return program.out().substr(from);
  }
  /// The same for a question; returns the figures of its answer.
  nlohmann::json ask(std::string_view line) {
    const std::string out = enter(line);
    const std::size_t begin = out.rfind("{\"prompt_tokens\"");
    REQUIRE(begin != std::string::npos);
    return nlohmann::json::parse(out.substr(begin, out.find('}', begin) + 1 - begin));
  }
  std::filesystem::path session_file(const std::string& name) const {
    return state / "ingot/sessions" / (name + ".session");
  }
  std::string history() const {
    const auto text = read_whole_file(state / "ingot/chat_history");
    return text ? *text : std::string();
  }
  /// Until so many bytes of an answer are there: behind what is said of reading the prompt, where
  /// that takes long enough to be said.
  bool wait_for_answer(std::size_t bytes) {
    constexpr std::string_view kBegin = "reading: ", kEnd = " tokens";
    constexpr std::size_t kCleared = 16;  // at most, for the line's end to be gone again
    const std::string& out = program.out();
    const std::size_t first = out.size();
    for (;;) {
      std::size_t from = first;
      if (const std::size_t said = out.rfind(kBegin); said != std::string::npos && said >= first) {
        const std::size_t end = out.find(kEnd, said);
        from = end == std::string::npos ? out.size() : end + kEnd.size() + kCleared;
      }
      if (out.size() >= from + bytes) return true;
      if (!program.wait_for_more(1)) return false;
    }
  }
  int leave() {
    program.send(kCtrlD);
    return program.wait();
  }

  TempDir home;
  std::filesystem::path state;
  PtyProgram program;
};

/// A model whose greedy answers never end: the logits of all that ends one are 0.
inline std::filesystem::path endless_model(const TempDir& folder) {
  write_changed_tiny_model(folder / "endless", "head.weight",
                           {control_id(control::kEos), control_id(control::kUser)}, 0);
  return folder / "endless";
}

}  // namespace ingot::test
