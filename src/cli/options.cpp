#include "src/cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "runtime/base/shared_library.hpp"
#include "src/cli/bench_options.hpp"
#include "src/cli/kernel_options.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/numbers.hpp"
#include "src/cli/session_settings.hpp"
#include "src/cli/setting_flags.hpp"
#include "src/cli/version.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr SettingGroups kRunGroups{SettingGroup::model, SettingGroup::engine,
                                   SettingGroup::sampling, SettingGroup::chat};

/// One line, lower-cased at the start, as all our errors are.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && (text[1] < 'A' || text[1] > 'Z')) {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return text;
}

int usable_cpus() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Result<std::int64_t> whole_number(std::string_view flag, std::string_view text, std::int64_t low,
                                  std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} must be a whole number from {} to {}, not \"{}\"", flag, low, high,
                            cut_utf8(text, 60)));
  }
  return value;
}

/// Everything that CLI11 fills in; the commands' own structs are made from it.
struct Parsed {
  SettingFlags chat_settings, generate_settings, score_settings, doctor_settings;
  ChatOptions chat;
  std::string chat_prompt;
  GenerateOptions generate;
  std::string generate_order = "finish", generate_shard, generate_full = "wait";
  ScoreOptions score;
  std::string score_tokens, score_text, score_top = "5";
  bool score_no_bos = false;
  TokensOptions tokens;
  std::string tokens_text, tokens_thinking;
  InspectOptions inspect;
  std::string inspect_model, inspect_tp, inspect_gpu, inspect_batch = "8", inspect_context = "16K";
  SynthOptions synth;
  std::string synth_seed = "1", synth_tokenizer;
  DoctorOptions doctor;
  SettingFlags prewarm_settings, cache_settings, bench_settings;
  PrewarmFlags prewarm;
  CacheFlags cache;
  BenchFlags bench;
};

CLI::App* add_chat(CLI::App& app, Parsed& parsed) {
  CLI::App* chat = app.add_subcommand("chat", "talk with the model");
  chat->add_option("-p,--prompt", parsed.chat_prompt, "ask this one question and leave")
      ->type_name("TEXT");
  chat->add_option("--conversation", parsed.chat.conversation,
                   "begin with the messages of this file (OpenAI chat format); a last question is "
                   "answered by /retry")
      ->type_name("FILE.json");
  chat->add_option("--session", parsed.chat.session,
                   "go on with this saved session, or begin one; it is saved at the end")
      ->type_name("NAME|PATH");
  chat->add_option("--tool", parsed.chat.tools,
                   "functions that the model may call (OpenAI chat format); you give the results")
      ->type_name("FILE.json");
  chat->add_option("--tool-command", parsed.chat.tool_command,
                   "run this for each call: it gets the call as JSON and prints the result")
      ->type_name("COMMAND");
  chat->add_flag("--stats", parsed.chat.stats,
                 "after each answer a line of JSON on standard error: tokens and times; at the end "
                 "one of all together, and on a GPU one of what the engine did");
  chat->add_flag("--json", parsed.chat.json,
                 "print each answer, and what a command shows, as one line of JSON");
  chat->add_flag("--plain", parsed.chat.plain,
                 "treat a terminal as a pipe: no prompt, no editing, no thinking, no colour");
  chat->add_flag("--private", parsed.chat.private_mode,
                 "write nothing of what is entered or answered to the disk");
  add_settings(*chat, parsed.chat_settings, kRunGroups);
  chat->footer(
      "Examples:\n"
      "  ingot chat --model DIR\n"
      "  echo \"What is a hash table?\" | ingot chat --model DIR --temperature 0\n"
      "Piped input is one prompt a line; the program ends with the input.\n"
      "Ctrl-C ends the answer; the exit status is 130 where that ends the program.");
  return chat;
}

CLI::App* add_generate(CLI::App& app, Parsed& parsed) {
  CLI::App* generate = app.add_subcommand("generate", "answer every line of a file");
  generate->add_option("--input", parsed.generate.input, "requests; - is standard input")
      ->type_name("IN")
      ->required();
  generate->add_option("--output", parsed.generate.output, "answers; - is standard output")
      ->type_name("OUT")
      ->required();
  generate
      ->add_option("--format", parsed.generate.format,
                   "of the input: OpenAI batch lines or one prompt a line; auto goes by the "
                   "extension .jsonl or .txt")
      ->type_name("auto|jsonl|text")
      ->check(CLI::IsMember({"auto", "jsonl", "text"}));
  generate
      ->add_option("--template", parsed.generate.line_template,
                   "body of a chat completion; {{name}} in its texts is a field of each line")
      ->type_name("FILE.json");
  generate
      ->add_option("--order", parsed.generate_order,
                   "of the answers: as they finish (default), or as their lines stand in the input "
                   "(default with --text)")
      ->type_name("finish|input")
      ->check(CLI::IsMember({"finish", "input"}));
  generate->add_flag(
      "--resume", parsed.generate.resume,
      "go on with what an earlier run of this input and shard wrote: lines that have "
      "an answer there are passed over");
  generate->add_flag("--retry-failed", parsed.generate.retry_failed,
                     "with --resume: answer the lines that failed again");
  generate->add_option("--shard", parsed.generate_shard, "take the I-th of every N lines")
      ->type_name("I/N");
  generate
      ->add_option("--merge", parsed.generate.merge,
                   "answer nothing: put the outputs of all shards together in OUT, in the order of "
                   "IN, if each line has its answer")
      ->type_name("FILE")
      ->expected(1, 100000);
  generate->add_option("--stats", parsed.generate.stats, "write figures as JSON, a line a second")
      ->type_name("FILE");
  generate
      ->add_option("--disk-full", parsed.generate_full,
                   "wait for room, or stop with what is written")
      ->type_name("wait|stop")
      ->check(CLI::IsMember({"wait", "stop"}));
  generate->add_flag("--longest-first", parsed.generate.longest_first,
                     "begin with the longest of the next 256 lines");
  generate->add_flag(
      "--text", parsed.generate.text,
      "write the answers alone, line by line beside the input: an empty line for one "
      "that is blank or failed; newline as \\n, CR as \\r, backslash as \\\\. With "
      "--order finish nothing says which line an answer belongs to");
  generate->add_flag("--force", parsed.generate.force, "replace an existing output file");
  generate->add_flag("--ignore-unknown", parsed.generate.ignore_unknown,
                     "accept request fields that ingot does not know");
  generate->add_flag("--quiet", parsed.generate.quiet, "no progress and no summary");
  add_settings(*generate, parsed.generate_settings, kRunGroups);
  generate->footer(
      "Example:\n"
      "  ingot generate --model DIR --input requests.jsonl --output answers.jsonl\n"
      "  ingot generate --input requests.jsonl --output answers.jsonl --merge answers-*.jsonl\n"
      "Answers stand in OUT.partial until all are there; OUT is then made by renaming it.\n"
      "Exit status: 0 all lines answered, 1 some failed, 2 nothing started, 130 interrupted.");
  return generate;
}

CLI::App* add_score(CLI::App& app, Parsed& parsed) {
  CLI::App* score = app.add_subcommand("score", "log-probabilities and perplexity of given text");
  auto* sources = score->add_option_group("Input (one of them)");
  sources->add_option("--tokens", parsed.score_tokens, "token ids; needs no tokenizer")
      ->type_name("5,6,7");
  sources->add_option("--text", parsed.score_text, "a text")->type_name("TEXT");
  sources->add_option("--input", parsed.score.input, "a file of text; - is standard input")
      ->type_name("FILE");
  sources
      ->add_option("--vectors", parsed.score.vectors,
                   "folder of captured official continuations to compare with")
      ->type_name("DIR");
  sources->require_option(1);
  score
      ->add_option(
          "--top", parsed.score_top,
          "likeliest tokens shown at each position (default 5); lists the positions of a text "
          "too")
      ->type_name("N");
  score->add_flag("--no-bos", parsed.score_no_bos,
                  "score a text without the begin-of-sentence token in front");
  score->add_flag("--json", parsed.score.json, "print one JSON object");
  score->add_flag("--stats", parsed.score.stats,
                  "at the end a line of JSON on standard error: what the engine did");
  add_settings(*score, parsed.score_settings, {SettingGroup::model, SettingGroup::engine});
  score->footer(
      "Examples:\n"
      "  ingot score --model DIR --tokens 5,6,7 --top 5 --json\n"
      "  ingot score --model DIR --input book.txt");
  return score;
}

CLI::App* add_tokens(CLI::App& app, Parsed& parsed) {
  CLI::App* tokens = app.add_subcommand("tokens", "token ids of a text or a conversation");
  tokens
      ->add_option("--model", parsed.tokens.model,
                   "a checkpoint, any folder with a tokenizer, or its tokenizer.json; without it "
                   "the built-in model")
      ->type_name("DIR");
  auto* sources = tokens->add_option_group("Input (one of them)");
  sources->add_option("--text", parsed.tokens_text, "a text")->type_name("TEXT");
  sources
      ->add_option("--messages", parsed.tokens.messages,
                   "chat messages (OpenAI chat format); - is standard input")
      ->type_name("FILE.json");
  sources
      ->add_option("--input", parsed.tokens.input,
                   "a file of text, of any length; - is standard input")
      ->type_name("FILE");
  sources->require_option(1);
  tokens->add_option("--thinking", parsed.tokens_thinking, "of messages: how much the model thinks")
      ->type_name("none|low|high|max")
      ->check(CLI::IsMember({"none", "low", "high", "max"}));
  tokens->add_flag("--keep-thinking", parsed.tokens.keep_thinking,
                   "of messages: keep the thinking of earlier turns");
  tokens->add_flag("--allow-special", parsed.tokens.allow_special, "text may spell control tokens");
  tokens->add_flag("--json", parsed.tokens.json, "print one JSON object");
  tokens->footer(
      "Examples:\n"
      "  ingot tokens --model DIR --text \"Hello, world\"\n"
      "  ingot tokens --model DIR --messages chat.json --thinking high --json");
  return tokens;
}

CLI::App* add_inspect(CLI::App& app, Parsed& parsed) {
  CLI::App* inspect =
      app.add_subcommand("inspect", "what a checkpoint holds, and whether it is whole");
  auto* folder = inspect->add_option("DIR,--model", parsed.inspect_model,
                                     "folder of the checkpoint; without it the built-in model");
  folder->type_name("DIR");
  inspect->add_option("--tp", parsed.inspect_tp, "also print what each of N ranks loads")
      ->type_name("N");
  auto* gpu = inspect->add_option("--gpu-memory", parsed.inspect_gpu,
                                  "also print what GPUs of so many GB would hold");
  gpu->type_name("GB");
  inspect
      ->add_option("--max-batch", parsed.inspect_batch,
                   "of --gpu-memory: sequences that run at once (default 8)")
      ->type_name("N")
      ->needs(gpu);
  inspect
      ->add_option("--context", parsed.inspect_context,
                   "of --gpu-memory: tokens of a sequence (default 16K)")
      ->type_name("N")
      ->needs(gpu);
  inspect->add_flag("--hash", parsed.inspect.hash,
                    "also print every tensor's digest and check every scale");
  inspect->add_flag("--json", parsed.inspect.json, "print one JSON object");
  inspect->footer(
      "Example:\n"
      "  ingot inspect DIR --tp 4 --gpu-memory 96 --context 128K\n"
      "Exit status: 0 the checkpoint is whole, 2 it is not, 1 it does not fit into the GPU.");
  return inspect;
}

Result<GpuWish> gpu_wish(const Parsed& parsed) {
  double gigabytes = 0;
  const std::string& text = parsed.inspect_gpu;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gigabytes);
  if (error != std::errc{} || end != text.data() + text.size() || !(gigabytes > 0) ||
      gigabytes > 1e6) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--gpu-memory must be a number of GB, not \"{}\"", cut_utf8(text, 60)));
  }
  const auto batch = parse_number("--max-batch", parsed.inspect_batch, 1, 4096);
  if (!batch) return Unexpected(batch.error());
  const auto context = parse_number("--context", parsed.inspect_context, 1, 1 << 24);
  if (!context) return Unexpected(context.error());
  return GpuWish{.memory_bytes = static_cast<std::uint64_t>(gigabytes * 1e9),
                 .max_batch = static_cast<int>(*batch),
                 .context = *context};
}

CLI::App* add_synth(CLI::App& app, Parsed& parsed) {
  CLI::App* synth = app.add_subcommand("synth", "write a checkpoint of random weights");
  synth->add_option("--config", parsed.synth.config_json, "shape of the model")
      ->type_name("config.json")
      ->required();
  synth->add_option("--seed", parsed.synth_seed, "same seed, same bytes (default 1)")
      ->type_name("N");
  synth
      ->add_option("--tokenizer", parsed.synth_tokenizer,
                   "tokenizer.json, tokenizer.json.zst or a folder with one: copied into OUT")
      ->type_name("FILE");
  synth->add_flag("--force", parsed.synth.force, "write into a folder that is not empty");
  synth->add_option("OUT", parsed.synth.out, "folder, made where it is missing")
      ->type_name("OUT")
      ->required();
  synth->footer(
      "Example:\n"
      "  ingot synth --config config.json --seed 1 --tokenizer tokenizer.json OUT");
  return synth;
}

CLI::App* add_doctor(CLI::App& app, Parsed& parsed) {
  CLI::App* doctor = app.add_subcommand("doctor", "check this machine, show the settings");
  doctor->add_flag("--settings", parsed.doctor.show_settings,
                   "print each effective setting and where it came from");
  doctor->add_flag("--json", parsed.doctor.json, "print one JSON object");
  add_settings(*doctor, parsed.doctor_settings,
               {SettingGroup::model, SettingGroup::engine, SettingGroup::cache,
                SettingGroup::sampling, SettingGroup::chat});
  doctor->footer(
      "Examples:\n"
      "  ingot doctor --model DIR\n"
      "  ingot doctor --settings --config my.toml --top-p 0.9\n"
      "Exit status: 0 ingot can run here, 1 it cannot as asked, 2 wrong usage.");
  return doctor;
}

/// Folders in which environment variables say that NVIDIA's libraries lie; those that exist.
std::vector<std::filesystem::path> library_directories(
    const std::function<std::string(const char*)>& variable) {
  std::vector<std::filesystem::path> directories;
  std::istringstream given(variable("INGOT_LIBRARY_PATH"));
  for (std::string word; std::getline(given, word, ':');) {
    if (!word.empty()) directories.emplace_back(word);
  }
  const auto add_wheels = [&](const std::filesystem::path& prefix) {
    for (auto& found : wheel_library_directories(prefix))
      directories.push_back(std::move(found));
  };
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string toolkit = variable(name);
    if (!toolkit.empty()) directories.push_back(std::filesystem::path(toolkit) / "lib64");
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::filesystem::path prefix = variable(name);
    if (prefix.empty()) continue;
    add_wheels(prefix);
    directories.push_back(prefix / "lib");
  }
  return directories;
}

}  // namespace

Environment read_environment() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  Environment environment;
  environment.home = variable("HOME");
  // The XDG specification: a relative path is invalid and to be ignored.
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/')) {
    environment.cache_home = xdg;
    environment.cache_home_from = "XDG_CACHE_HOME";
  } else if (const std::string home = variable("HOME"); !home.empty()) {
    environment.cache_home = std::filesystem::path(home) / ".cache";
    environment.cache_home_from = "HOME";
  }
  if (const std::string xdg = variable("XDG_STATE_HOME"); xdg.starts_with('/')) {
    environment.state_home = xdg;
  } else if (const std::filesystem::path home = variable("HOME"); !home.empty()) {
    std::error_code error;
    if (std::filesystem::is_directory(home, error)) environment.state_home = home / ".local/state";
  }
  environment.library_dirs = library_directories(variable);
  std::error_code unknown;
  environment.program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  environment.editor = variable("VISUAL");
  if (environment.editor.empty()) environment.editor = variable("EDITOR");
  environment.no_color = !variable("NO_COLOR").empty();
  const std::string term = variable("TERM");
  environment.dumb_terminal = term.empty() || term == "dumb";
  return environment;
}

namespace {

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&](const CLI::App* inner) { return inner->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

/// The arguments with `--option=` as the two words `--option` and "": CLI11 reads that as an option
/// whose value is the next word, and would swallow what the user meant for something else.
std::vector<std::string> with_empty_values(const CLI::App& program,
                                           std::span<const char* const> arguments) {
  std::vector<std::string> out;
  const CLI::App* command = &program;
  bool is_option_value = true;  // the program's own name is no option either
  bool options_ended = false;
  for (const char* const argument : arguments) {
    std::string word = argument;
    const bool is_value = std::exchange(is_option_value, false) || options_ended;
    if (!is_value && !word.starts_with('-')) {
      const CLI::App* const inner = find_command(*command, word);
      if (inner != nullptr) command = inner;
    } else if (!is_value && word == "--") {
      options_ended = true;
    } else if (!is_value) {
      const std::size_t equals = word.find('=');
      const CLI::Option* const option = command->get_option_no_throw(word.substr(0, equals));
      const bool takes_value = option != nullptr && option->get_items_expected_min() > 0;
      is_option_value = takes_value && equals == std::string::npos;
      if (takes_value && equals + 1 == word.size() && word.starts_with("--")) {
        out.push_back(word.substr(0, equals));
        word.clear();
      }
    }
    out.push_back(std::move(word));
  }
  return out;
}

/// A file or folder must have a name: an empty one would surface late, or as another error.
void refuse_empty_names(CLI::App& app) {
  const CLI::Validator named(
      [](const std::string& name) {
        return name.empty() ? std::string("the name must not be empty") : std::string();
      },
      "");
  constexpr std::string_view kTypes[] = {"DIR", "FILE", "FILE.json",  "FILE.toml",
                                         "IN",  "OUT",  "config.json"};
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    const bool is_name = std::find(std::begin(kTypes), std::end(kTypes), option->get_type_name()) !=
                             std::end(kTypes) ||
                         option->check_lname("model") || option->check_lname("cache-dir") ||
                         option->check_lname("session");
    if (is_name) option->check(named);
  }
  for (CLI::App* inner : app.get_subcommands([](CLI::App*) { return true; }))
    refuse_empty_names(*inner);
}

/// The word that stands where a command should; empty if there is none. CLI11 answers --help before
/// it looks.
std::string unknown_command(const CLI::App& app) {
  const CLI::App* chosen = &app;
  for (bool deeper = true; deeper;) {
    deeper = false;
    for (const CLI::App* inner : chosen->get_subcommands()) {
      if (inner->get_name().empty()) continue;  // a group of options
      chosen = inner;
      deeper = true;
      break;
    }
  }
  const auto commands =
      chosen->get_subcommands([](const CLI::App* inner) { return !inner->get_name().empty(); });
  if (commands.empty()) return {};
  // A command hands a word that it does not know up to the program.
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with('-')) return word;
  }
  return {};
}

/// Says which words were left over, in the order in which they were given: CLI11 has them as its
/// commands handed them on.
std::string unexpected_words(std::vector<std::string> left, const std::vector<std::string>& given) {
  std::vector<std::string> in_order;
  for (const std::string& word : given) {
    const auto found = std::find(left.begin(), left.end(), word);
    if (found == left.end()) continue;
    in_order.push_back(word);
    left.erase(found);
  }
  // A word that CLI11 has cut in two (--option=value) is not among those given.
  in_order.insert(in_order.end(), left.begin(), left.end());
  return fmt::format("the following argument{} not expected: {}",
                     in_order.size() == 1 ? " was" : "s were", fmt::join(in_order, " "));
}

}  // namespace

Result<Command> parse_command_line(std::span<const char* const> arguments,
                                   const Environment& environment) {
  CLI::App app("ingot runs DeepSeek-V4-Flash, and any checkpoint of that architecture.", "ingot");
  app.set_version_flag("--version", fmt::format("ingot {}", kVersion));
  app.require_subcommand(0, 1);
  app.footer("`ingot COMMAND --help` shows a command's options and an example.");
  Parsed parsed;
  const CLI::App* chat = add_chat(app, parsed);
  const CLI::App* generate = add_generate(app, parsed);
  const CLI::App* score = add_score(app, parsed);
  const CLI::App* tokens = add_tokens(app, parsed);
  const CLI::App* inspect = add_inspect(app, parsed);
  const CLI::App* synth = add_synth(app, parsed);
  const CLI::App* doctor = add_doctor(app, parsed);
  CLI::App* prewarm = add_prewarm(app, parsed.prewarm);
  // Its --config is the model's; settings come from flags alone.
  add_settings(*prewarm, parsed.prewarm_settings, {SettingGroup::cache}, SettingsFile::refused);
  CLI::App* cache = add_cache(app, parsed.cache);
  add_settings(*cache, parsed.cache_settings, {SettingGroup::cache});
  CLI::App* bench = add_bench(app, parsed.bench);
  add_settings(*bench, parsed.bench_settings, {SettingGroup::cache}, SettingsFile::refused);

  const auto chosen_name = [&]() -> std::string {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? "ingot" : "ingot " + chosen.front()->get_name();
  };
  refuse_empty_names(app);
  const std::vector<std::string> words = with_empty_values(app, arguments);
  std::vector<const char*> pointers;
  for (const std::string& word : words)
    pointers.push_back(word.c_str());
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} (see `{} --help`)", why, chosen_name()));
  };
  const auto no_such_command = [&](const std::string& word) {
    return refused(fmt::format("unknown command \"{}\"", word));
  };
  try {
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::CallForHelp&) {
    if (const auto word = unknown_command(app); !word.empty()) return no_such_command(word);
    const auto chosen = app.get_subcommands();
    return PrintAndExit{chosen.empty() ? app.help() : chosen.front()->help("ingot")};
  } catch (const CLI::CallForAllHelp&) {
    return PrintAndExit{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    if (const auto word = unknown_command(app); !word.empty()) return no_such_command(word);
    return PrintAndExit{std::string(version.what()) + "\n"};
  } catch (const CLI::ExtrasError&) {
    return refused(unexpected_words(app.remaining(true), words));
  } catch (const CLI::RequiredError& error) {
    // A word that is not known was perhaps meant for what is missing.
    const auto unknown = app.remaining(true);
    return refused(unknown.empty() ? one_line(error.what()) : unexpected_words(unknown, words));
  } catch (const CLI::ParseError& error) {
    return refused(one_line(error.what()));
  }

  const auto settings_of = [&](const CLI::App& command, const SettingFlags& flags) {
    return resolve_settings(command, flags, environment);
  };
  if (chat->parsed()) {
    const auto settings = settings_of(*chat, parsed.chat_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.chat.settings = settings->values();
    for (const SettingSpec& spec : setting_specs()) {
      const auto layers = settings->layers(spec.key);
      const bool by_flag = !layers.empty() && layers.front().origin == spec.flag;
      if (by_flag && is_session_setting(spec)) parsed.chat.given.push_back(&spec);
    }
    parsed.chat.environment = environment;
    if (chat->count("--prompt") > 0) {
      if (parsed.chat_prompt.find_first_not_of(" \t\r\n") == std::string::npos) {
        return fail(ErrorCode::invalid_argument,
                    "--prompt: the question is empty; give a text, or leave --prompt out");
      }
      parsed.chat.prompt = parsed.chat_prompt;
    }
    return parsed.chat;
  }
  if (generate->parsed()) {
    const auto settings = settings_of(*generate, parsed.generate_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.generate.settings = settings->values();
    parsed.generate.environment = environment;
    // Answers alone are known by their place.
    parsed.generate.input_order = parsed.generate_order == "input" ||
                                  (parsed.generate.text && generate->count("--order") == 0);
    parsed.generate.stop_when_full = parsed.generate_full == "stop";
    if (generate->count("--shard") > 0) {
      const auto shard = parse_shard(parsed.generate_shard);
      if (!shard) return Unexpected(shard.error());
      parsed.generate.shard = *shard;
    }
    if (!parsed.generate.merge.empty()) {
      for (const char* flag : {"--text", "--resume", "--shard"}) {
        if (generate->count(flag) == 0) continue;
        return fail(ErrorCode::invalid_argument,
                    fmt::format("--merge puts outputs together as they are: leave out {}", flag));
      }
    }
    if (parsed.generate.retry_failed && !parsed.generate.resume) {
      return fail(ErrorCode::invalid_argument, "--retry-failed needs --resume");
    }
    if (parsed.generate.resume && parsed.generate.force) {
      return fail(ErrorCode::invalid_argument,
                  "--resume keeps what is there and --force replaces it: give one");
    }
    return parsed.generate;
  }
  if (score->parsed()) {
    const auto settings = settings_of(*score, parsed.score_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.score.settings = settings->values();
    parsed.score.environment = environment;
    const auto top = whole_number("--top", parsed.score_top, 0, 1000);
    if (!top) return Unexpected(top.error());
    parsed.score.top = static_cast<int>(*top);
    parsed.score.positions = score->count("--tokens") > 0 || score->count("--top") > 0;
    parsed.score.bos = !parsed.score_no_bos;
    if (score->count("--tokens") > 0) parsed.score.tokens = parsed.score_tokens;
    if (score->count("--text") > 0) parsed.score.text = parsed.score_text;
    return parsed.score;
  }
  if (tokens->parsed()) {
    if (tokens->count("--text") > 0) parsed.tokens.text = parsed.tokens_text;
    if (tokens->count("--thinking") > 0) {
      parsed.tokens.thinking = thinking_from_name(parsed.tokens_thinking);
    }
    return parsed.tokens;
  }
  if (inspect->parsed()) {
    parsed.inspect.model = parsed.inspect_model;
    parsed.inspect.threads = usable_cpus();
    if (inspect->count("--tp") > 0) {
      const auto tp = whole_number("--tp", parsed.inspect_tp, 1, 64);
      if (!tp) return Unexpected(tp.error());
      parsed.inspect.tp = static_cast<int>(*tp);
    }
    if (inspect->count("--gpu-memory") > 0) {
      auto wish = gpu_wish(parsed);
      if (!wish) return Unexpected(wish.error());
      parsed.inspect.gpu = *wish;
    }
    return parsed.inspect;
  }
  if (synth->parsed()) {
    parsed.synth.threads = usable_cpus();
    const auto seed = whole_number("--seed", parsed.synth_seed, 0, INT64_MAX);
    if (!seed) return Unexpected(seed.error());
    parsed.synth.seed = static_cast<std::uint64_t>(*seed);
    if (!parsed.synth_tokenizer.empty()) parsed.synth.tokenizer = parsed.synth_tokenizer;
    return parsed.synth;
  }
  if (doctor->parsed()) {
    auto settings = settings_of(*doctor, parsed.doctor_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.doctor.settings = std::move(*settings);
    parsed.doctor.environment = environment;
    return parsed.doctor;
  }
  if (prewarm->parsed()) {
    const auto settings = settings_of(*prewarm, parsed.prewarm_settings);
    if (!settings) return Unexpected(settings.error());
    auto options = prewarm_options(parsed.prewarm, settings->values(), environment);
    if (!options) return Unexpected(options.error());
    return std::move(*options);
  }
  if (cache->parsed()) {
    const auto settings = settings_of(*cache, parsed.cache_settings);
    if (!settings) return Unexpected(settings.error());
    auto options = cache_options(*cache, parsed.cache, settings->values(), environment);
    if (!options) return Unexpected(options.error());
    return std::move(*options);
  }
  if (bench->parsed()) {
    const auto settings = settings_of(*bench, parsed.bench_settings);
    if (!settings) return Unexpected(settings.error());
    auto options = bench_options(*bench, parsed.bench, settings->values(), environment);
    if (!options) return Unexpected(options.error());
    return std::move(*options);
  }
  return fail(ErrorCode::invalid_argument, "a command is needed (see `ingot --help`)");
}

}  // namespace ingot
