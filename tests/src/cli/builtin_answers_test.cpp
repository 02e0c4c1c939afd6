// What the built-in model answers, through the built program: greedy, FP8 and FP4, on the CPU.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/reference/reference_engine.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/tokenizer.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
using nlohmann::json;

namespace {

struct Answered {
  std::string set;  ///< "held sums"
  std::string question;
  std::string expect;
  std::string answer;
  bool thinks = false;     ///< it was asked to
  std::string reasoning;   ///< what it wrote before the answer
  bool has_ended = false;  ///< by itself, not at a limit
};

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(json::parse(line));
  return lines;
}

std::vector<Answered> ask_all() {
  const TempDir folder;
  std::map<std::string, Answered> by_id;
  std::vector<std::string> order;
  std::string input;
  for (const json& line : lines_of(read_file(golden_dir() / "builtin_model/questions.jsonl"))) {
    const json& request = line["request"];
    const auto id = request["custom_id"].get<std::string>();
    Answered& asked = by_id[id];
    asked.set = id.substr(0, id.find('|'));
    asked.question = request["body"]["messages"][0]["content"];
    asked.expect = line["expect"];
    asked.thinks = request["body"]["reasoning_effort"] != "none";
    order.push_back(id);
    input += request.dump() + "\n";
  }
  write_file(folder / "in.jsonl", input);
  const auto ran = run_ingot({"generate", "--device", "cpu", "--quiet", "--input",
                              folder / "in.jsonl", "--output", folder / "out.jsonl"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  for (const json& line : lines_of(read_file(folder / "out.jsonl"))) {
    const json& choice = line["response"]["body"]["choices"][0];
    Answered& asked = by_id.at(line["custom_id"]);
    asked.answer = choice["message"]["content"];
    asked.reasoning = choice["message"].value("reasoning_content", "");
    asked.has_ended = choice["finish_reason"] == "stop";
  }
  std::vector<Answered> answers;
  for (const std::string& id : order)
    answers.push_back(by_id.at(id));
  return answers;
}

/// The answers to all questions; asked once.
const std::vector<Answered>& answers() {
  static const std::vector<Answered> all = ask_all();
  return all;
}

int argmax(std::span<const float> row) {
  return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace

TEST_CASE("the built-in model answers what it was taught, and facts and sums kept back",
          "[cpu][model]") {
  // Of the two named facts, held-back facts and sums, and look-ups the project promises these
  // shares; the others are well below what the model reaches and far above what a wrong engine
  // would.
  const std::map<std::string, double> least{
      {"named", 1.0},
      {"named, thinking", 1.0},
      {"held facts", 0.95},
      {"held facts, thinking", 0.95},
      {"unseen phrasings", 0.75},
      {"held sums", 0.80},
      {"held sums, thinking", 0.80},
      {"products", 0.60},
      {"products, thinking", 0.80},
      {"letters", 0.70},
      {"order", 0.90},
      {"copy", 0.90},
      {"look-up at 50", 0.90},
      {"look-up at 200", 0.90},
      {"look-up at 500", 0.90},
      {"look-up at 1000", 0.90},
  };
  struct Count {
    int right = 0;
    int all = 0;
    std::string wrong;
  };
  std::map<std::string, Count> counts;
  for (const Answered& asked : answers()) {
    Count& count = counts[asked.set];
    ++count.all;
    if (asked.answer.find(asked.expect) != std::string::npos) {
      ++count.right;
    } else {
      count.wrong +=
          fmt::format("\n{} -> {} (wanted {})", asked.question, asked.answer, asked.expect);
    }
  }
  CHECK(counts.size() == least.size());
  for (const auto& [set, count] : counts) {
    CAPTURE(set, count.right, count.all, count.wrong);
    CHECK(count.right >= least.at(set) * count.all);
  }
}

TEST_CASE("the built-in model thinks where it is asked to, and ends its answers", "[cpu][model]") {
  for (const Answered& asked : answers()) {
    CAPTURE(asked.question, asked.answer, asked.reasoning);
    CHECK(asked.has_ended);
    CHECK(asked.reasoning.empty() == !asked.thinks);
  }
}

TEST_CASE("the built-in model's answers are the same at every batch size and number of threads",
          "[cpu][model]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 12; ++i)
    input += answers().at(static_cast<std::size_t>(4 + i)).question + "\n";
  write_file(folder / "in.txt", input);
  const auto ask = [&](const char* batch, const char* threads) {
    const auto ran = run_ingot({"generate", "--device", "cpu", "--quiet", "--text", "--temperature",
                                "0", "--max-batch", batch, "--threads", threads, "--max-tokens",
                                "60", "--input", folder / "in.txt", "--output", "-"});
    CHECK(ran.status == 0);
    return ran.out;
  };
  const std::string alone = ask("1", "1");
  CHECK(std::count(alone.begin(), alone.end(), '\n') == 12);
  CHECK(ask("8", "2") == alone);
}

TEST_CASE("drafts of the built-in model's MTP block agree with what the model says next",
          "[cpu][model]") {
  const std::filesystem::path folder = golden_dir() / "../../configs/models/ingot-tiny";
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(folder));
  ReferenceEngine engine(value_or_throw(open_checkpoint(folder)), {.threads = 2});
  int drafts = 0, agreed = 0;
  for (const Answered& asked : answers()) {
    if (asked.thinks) continue;
    ChatMessage message;
    message.content = asked.question;
    std::vector<TokenId> tokens =
        encode_prompt(tokenizer, value_or_throw(render_chat({&message, 1}, {})));
    const std::size_t first = tokens.size();
    tokenizer.encode(asked.answer, AddedTokens::as_text, tokens);
    tokens.push_back(engine.config().eos_token_id);
    const SequenceId sequence = engine.create_sequence();
    const SequenceStep step{sequence, tokens, LogitsOf::all};
    const StepLogits said = engine.step({&step, 1}).front();
    const StepLogits drafted =
        engine.mtp_step(sequence, std::span(tokens).subspan(1), LogitsOf::all);
    engine.release(sequence);
    // Row i of the block is its draft of token i + 2; so is row i + 1 of the model.
    for (std::size_t i = first - 2; i + 2 < tokens.size(); ++i) {
      const int row = static_cast<int>(i);
      ++drafts;
      agreed += argmax(drafted.row(row)) == argmax(said.row(row + 1));
    }
  }
  const double share = static_cast<double>(agreed) / drafts;
  fmt::print("MTP: {} of {} drafts agree, {:.2f} %\n", agreed, drafts, 100 * share);
  CHECK(drafts > 1000);
  CHECK(share >= 0.60);
}
