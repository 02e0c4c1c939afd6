#include "src/chat/chat_commands.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "runtime/base/atomic_publish.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::string name_of(std::string text, bool literal = false) {
  const TypedMessage message{std::move(text), literal};
  const auto command = as_command(message);
  return command ? std::string(command->name) + "|" + std::string(command->argument) : "";
}

std::vector<std::string> completed(std::string_view before) {
  return complete_chat_command(before,
                               [](ArgumentKind kind, std::string_view) {
                                 return kind == ArgumentKind::effort
                                            ? std::vector<std::string>{"none", "high", "max"}
                                            : std::vector<std::string>{};
                               })
      .candidates;
}

}  // namespace

TEST_CASE("a command is one line that begins with a slash and a word", "[cpu][chat]") {
  CHECK(name_of("/help") == "/help|");
  CHECK(name_of("  /think  high budget 3 ") == "/think|high budget 3");
  CHECK(name_of("/nonsense x") == "/nonsense|x");
  CHECK(name_of("/etc/passwd is a file").empty());
  CHECK(name_of("/notes.txt").empty());
  CHECK(name_of("/").empty());
  CHECK(name_of("/ a").empty());
  CHECK(name_of("//help").empty());
  CHECK(name_of("/2 is a half").empty());
  CHECK(name_of("no /help").empty());
  CHECK(name_of("/help", true).empty());
}

TEST_CASE("every command is in the help, once, on short lines", "[cpu][chat]") {
  const std::string help = chat_commands_help();
  std::set<std::string_view> names;
  for (const ChatCommand& command : chat_commands()) {
    CHECK(names.insert(command.name).second);
    CHECK(find_chat_command(command.name) == &command);
    CHECK(help.find(std::string(command.name)) != std::string::npos);
    CHECK(help.find(std::string(command.help.substr(0, command.help.find('\n')))) !=
          std::string::npos);
    CHECK((command.arguments.empty()) == (command.kind == ArgumentKind::none));
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);)
    CHECK(line.size() <= 80);
  // The page of the documentation shows it as it is.
  const auto page = read_whole_file(golden_dir() / "../../docs/chat.md");
  REQUIRE(page);
  CHECK(page->find(help) != std::string::npos);
}

TEST_CASE("commands and their arguments are completed", "[cpu][chat]") {
  CHECK(completed("/th") == std::vector<std::string>{"/think"});
  CHECK(completed("/").size() == chat_commands().size());
  CHECK(completed("/think ") == std::vector<std::string>{"high", "max", "none"});
  CHECK(completed("/think m") == std::vector<std::string>{"max"});
  CHECK(completed("/think high b").empty());
  CHECK(completed("/nothing h").empty());
}
