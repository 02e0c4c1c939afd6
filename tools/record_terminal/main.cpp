// Runs a program on a terminal, types what standard input says, and records what is seen: an
// asciicast (version 2) and a picture of the last screen.
//   record_terminal OUT.cast OUT.svg COLUMNSxROWS PROGRAM [ARGUMENT…] <<STEPS
// A step a line:
//   type TEXT     key by key, then Enter
//   key NAME      ctrl-c, ctrl-d, ctrl-t, up, tab
//   wait TEXT     until this is written
//   pause MS
//   # and anything is a remark
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/error.hpp"
#include "src/text/json_value.hpp"
#include "src/text/tokenizer.hpp"
#include "tests/support/pty_program.hpp"

using namespace ingot;
using namespace ingot::test;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kBetweenKeys{45};

const std::map<std::string, std::string>& keys() {
  static const std::map<std::string, std::string> all{
      {"ctrl-c", "\x03"}, {"ctrl-d", "\x04"}, {"ctrl-t", "\x14"}, {"up", "\x1b[A"}, {"tab", "\t"}};
  return all;
}

void wait_until(PtyProgram& program, milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end)
    program.settle(milliseconds(5));
}

void step(PtyProgram& program, const std::string& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const std::string text = line.substr(std::min(space + 1, line.size()));
  if (name == "type") {
    for (const char byte : text) {
      program.send({&byte, 1});
      wait_until(program, kBetweenKeys);
    }
    program.send("\r");
  } else if (name == "key" && keys().contains(text)) {
    program.send(keys().at(text));
  } else if (name == "wait") {
    if (!program.wait_for(text, 120)) throw std::runtime_error("never written: " + text);
  } else if (name == "pause") {
    wait_until(program, milliseconds(std::stoi(text)));
  } else if (!name.empty() && name != "#") {
    throw std::runtime_error("no such step: " + line);
  }
}

std::string cast_of(const PtyProgram& program, int columns, int rows) {
  std::string out =
      fmt::format("{{\"version\": 2, \"width\": {}, \"height\": {}}}\n", columns, rows);
  Utf8Stream characters;  // what came may be cut inside of one
  std::size_t begin = 0;
  for (const auto& [time, end] : program.arrivals()) {
    const std::string text =
        characters.push(std::string_view(program.out()).substr(begin, end - begin));
    begin = end;
    if (!text.empty()) out += fmt::format("[{:.3f}, \"o\", {}]\n", time, to_python_json(text));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int columns = 0, rows = 0;
    if (argc < 5 || std::sscanf(argv[3], "%dx%d", &columns, &rows) != 2) {
      throw std::runtime_error("usage: record_terminal OUT.cast OUT.svg COLUMNSxROWS PROGRAM …");
    }
    PtyOptions options;
    options.columns = columns;
    options.rows = rows;
    options.program = argv[4];
    for (const char* name : {"HOME", "XDG_STATE_HOME", "PATH"}) {
      if (const char* value = std::getenv(name)) {
        options.environment.push_back(std::string(name) + "=" + value);
      }
    }
    PtyProgram program({argv + 5, argv + argc}, options);
    for (std::string line; std::getline(std::cin, line);)
      step(program, line);
    value_or_throw(publish_file(argv[1], cast_of(program, columns, rows)));
    value_or_throw(publish_file(argv[2], program.screen().svg()));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "record_terminal: %s\n", error.what());
    return 1;
  }
}
