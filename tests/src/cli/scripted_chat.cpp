// `ingot chat` over an engine that answers what a file tells it to, for what no small model says by
// itself: thinking, calls of functions, characters and stop strings that several tokens make up.
//   scripted_chat SCRIPT chat [FLAG…]
// SCRIPT: the milliseconds that a step takes, and perhaps how often the engine has something to
// make ready before a turn, and how many that takes (at the end SCRIPT.prepared is there); then the
// answers; each begins with a line "---". The
// answer to the Nth question of a prompt is the Nth; after the last it begins again. Control tokens
// are recognised in them; EOS follows by itself.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "src/cli/chat_loop.hpp"
#include "src/cli/options.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Script {
  int step_ms = 0;
  int preparations = 0, prepare_ms = 0;
  std::string prepared;
  std::vector<std::vector<TokenId>> answers;
};

Script read_script(const char* file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Script script;
  script.prepared = std::string(file) + ".prepared";
  std::istringstream(text) >> script.step_ms >> script.preparations >> script.prepare_ms;
  constexpr std::string_view kMark = "\n---\n";
  for (std::size_t at = text.find(kMark); at != std::string::npos;) {
    const std::size_t begin = at + kMark.size();
    at = text.find(kMark, begin);
    script.answers.push_back(
        small_tokenizer().encode(text.substr(begin, at - begin), AddedTokens::recognise));
  }
  return script;
}

std::unique_ptr<FakeEngine> scripted_engine(Script script) {
  auto engine = std::make_unique<FakeEngine>();
  if (script.step_ms > 0) {
    engine->set_before_step(
        [ms = script.step_ms](int) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  }
  engine->set_prepare([left = script.preparations, ms = script.prepare_ms,
                       done = script.prepared](const StepForecast&) mutable {
    if (left == 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    if (--left == 0) std::ofstream{done};
    return left > 0;
  });
  const TokenId assistant = control_id(control::kAssistant);
  engine->set_logits([script = std::move(script), assistant](const std::vector<TokenId>& tokens,
                                                             std::vector<float>& logits) {
    const auto turn = static_cast<std::size_t>(std::count(tokens.begin(), tokens.end(), assistant));
    const auto& answer = script.answers[(turn - 1) % script.answers.size()];
    const auto since = std::find(tokens.rbegin(), tokens.rend(), assistant) - tokens.rbegin();
    const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(since - 1, 0));
    logits[static_cast<std::size_t>(at < answer.size() ? answer[at] : 1)] = 100;
  });
  return engine;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Environment environment = read_environment();
    std::vector<const char*> arguments(argv + 1, argv + argc);
    const auto command = value_or_throw(parse_command_line(arguments, environment));
    const auto& options = std::get<ChatOptions>(command);
    LoadedModel model;
    model.name = "scripted";
    auto engine = scripted_engine(read_script(argv[1]));
    engine->set_max_context(options.settings.context);
    model.engine = std::move(engine);
    model.tokenizer = value_or_throw(Tokenizer::parse(small_tokenizer_json(), "small"));
    std::vector<std::string> tools;
    if (!options.tools.empty()) {
      tools = value_or_throw(parse_chat_tools(
          value_or_throw(read_text_file(options.tools, kMaxMessagesBytes)), "tools"));
    }
    return talk(options, model, {}, std::move(tools));
  } catch (const EngineError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.error().code);
  }
}
