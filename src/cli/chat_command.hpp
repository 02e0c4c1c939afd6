#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

struct ChatOptions {
  Settings settings;
  std::vector<const SettingSpec*> given = {};  ///< session settings that flags named
  Environment environment;
  std::optional<std::string> prompt;   ///< --prompt: one question, one answer
  std::filesystem::path conversation;  ///< --conversation: messages to begin with
  std::string session;                 ///< --session: a saved one to go on with, or a new name
  std::filesystem::path tools;         ///< --tool: functions that the model may call
  std::string tool_command;            ///< --tool-command: a shell's line that answers their calls
  bool stats = false;                  ///< after each answer a line of JSON on standard error
  bool json = false;                   ///< answers as JSON
  bool plain = false;  ///< a terminal is treated as a pipe: no prompt, no thinking, no colour
  bool private_mode = false;  ///< nothing of what is entered or answered is written to the disk
};

/// `ingot chat`: a conversation on the terminal, or one prompt a line from a pipe.
/// Returns the exit status: 0 at the end of input, 130 after an interrupt. Throws EngineError.
int run_chat(const ChatOptions& options);

}  // namespace ingot
