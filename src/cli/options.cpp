#include "src/cli/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "runtime/base/shared_library.hpp"
#include "src/cli/kernel_options.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/settings_config.hpp"
#include "src/cli/version.hpp"

namespace ingot {
namespace {

using Groups = std::initializer_list<SettingGroup>;

constexpr Groups kRunGroups{SettingGroup::model, SettingGroup::engine, SettingGroup::sampling,
                            SettingGroup::chat};

/// The flags of one command that stand for settings, as given.
struct SettingFlags {
  std::map<const SettingSpec*, std::vector<std::string>> texts;
  std::map<const SettingSpec*, bool> switches;
  std::string config;
};

std::string default_text(const SettingSpec& spec) {
  const std::string shown = show(Settings{}, spec);
  return shown == "unset" || shown == "\"\"" || shown == "[]" || shown == "false"
             ? std::string()
             : fmt::format(" (default {})", shown);
}

std::string type_name(const SettingSpec& spec) {
  if (!spec.choices.empty()) {
    std::string names;
    for (const std::string_view choice : spec.choices) {
      names += (names.empty() ? "" : "|") + std::string(choice);
    }
    return names;
  }
  return std::visit(
      []<class T>(T Settings::*) -> std::string {
        if constexpr (std::is_same_v<T, double>) return "NUMBER";
        if constexpr (std::is_same_v<T, std::string> ||
                      std::is_same_v<T, std::vector<std::string>>) {
          return "TEXT";
        }
        return "N";
      },
      spec.member);
}

enum class SettingsFile { accepted, refused };

void add_settings(CLI::App& app, SettingFlags& flags, Groups groups,
                  SettingsFile file = SettingsFile::accepted) {
  for (const SettingSpec& spec : setting_specs()) {
    if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) continue;
    const std::string doc = std::string(spec.doc) + default_text(spec);
    CLI::Option* option = nullptr;
    if (std::holds_alternative<bool Settings::*>(spec.member)) {
      option = app.add_flag(std::string(spec.flag), flags.switches[&spec], doc);
    } else {
      option = app.add_option(std::string(spec.flag), flags.texts[&spec], doc)
                   ->type_name(type_name(spec))
                   ->allow_extra_args(false);
      const bool repeats =
          std::holds_alternative<std::vector<std::string> Settings::*>(spec.member);
      if (!repeats) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    }
    option->group("Settings");
  }
  if (file == SettingsFile::refused) return;
  app.add_option("--config", flags.config, "settings file (TOML); flags go before it")
      ->type_name("FILE.toml")
      ->group("Settings");
}

/// Defaults, then the environment, then the file, then the flags.
Result<LayeredSettings> resolve(const CLI::App& app, const SettingFlags& flags,
                                const Environment& environment) {
  LayeredSettings settings;
  if (!environment.cache_home.empty()) {
    if (auto applied =
            settings.apply(*find_setting("cache.dir"), (environment.cache_home / "ingot").string(),
                           environment.cache_home_from);
        !applied) {
      return Unexpected(applied.error());
    }
  }
  if (!flags.config.empty()) {
    if (auto applied = apply_settings_file(settings, flags.config); !applied) {
      return Unexpected(applied.error());
    }
  }
  for (const SettingSpec& spec : setting_specs()) {
    // A command may have a flag of the same name that is no setting.
    if (!flags.texts.contains(&spec) && !flags.switches.contains(&spec)) continue;
    const CLI::Option* option = app.get_option_no_throw(std::string(spec.flag));
    if (option == nullptr || option->count() == 0) continue;
    const auto given = flags.texts.find(&spec);
    const std::vector<std::string> none;
    if (auto applied = settings.apply_text(spec, given == flags.texts.end() ? none : given->second,
                                           std::string(spec.flag));
        !applied) {
      return Unexpected(applied.error());
    }
  }
  return settings;
}

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
                            text.substr(0, 60)));
  }
  return value;
}

/// Everything that CLI11 fills in; the commands' own structs are made from it.
struct Parsed {
  SettingFlags chat_settings, generate_settings, score_settings, doctor_settings;
  ChatOptions chat;
  std::string chat_prompt;
  GenerateOptions generate;
  ScoreOptions score;
  std::string score_tokens, score_text, score_top = "5";
  bool score_no_bos = false;
  TokensOptions tokens;
  std::string tokens_text, tokens_thinking;
  InspectOptions inspect;
  std::string inspect_model, inspect_tp;
  SynthOptions synth;
  std::string synth_seed = "1", synth_tokenizer;
  DoctorOptions doctor;
  SettingFlags prewarm_settings, cache_settings;
  PrewarmFlags prewarm;
  CacheFlags cache;
};

CLI::App* add_chat(CLI::App& app, Parsed& parsed) {
  CLI::App* chat = app.add_subcommand("chat", "talk with the model");
  chat->add_option("-p,--prompt", parsed.chat_prompt, "ask this one question and leave")
      ->type_name("TEXT");
  chat->add_option("--conversation", parsed.chat.conversation,
                   "begin with the messages of this file (OpenAI chat format)")
      ->type_name("FILE.json");
  chat->add_flag("--stats", parsed.chat.stats,
                 "after each answer: tokens prefilled, reused and generated, and how fast");
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
  generate->add_flag("--text", parsed.generate.text,
                     "write the answers alone, one a line (newline as \\n, backslash as \\\\)");
  generate->add_flag("--force", parsed.generate.force, "replace an existing output file");
  generate->add_flag("--ignore-unknown", parsed.generate.ignore_unknown,
                     "accept request fields that ingot does not know");
  generate->add_flag("--quiet", parsed.generate.quiet, "no progress and no summary");
  add_settings(*generate, parsed.generate_settings, kRunGroups);
  generate->footer(
      "Example:\n"
      "  ingot generate --model DIR --input requests.jsonl --output answers.jsonl\n"
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
  sources->add_option("--input", parsed.score.input, "a file of text")->type_name("FILE");
  sources
      ->add_option("--vectors", parsed.score.vectors,
                   "folder of captured official continuations to compare with")
      ->type_name("DIR");
  sources->require_option(1);
  score
      ->add_option("--top", parsed.score_top, "likeliest tokens shown at each position (default 5)")
      ->type_name("N");
  score->add_flag("--no-bos", parsed.score_no_bos,
                  "score a text without the begin-of-sentence token in front");
  score->add_flag("--json", parsed.score.json, "print one JSON object");
  add_settings(*score, parsed.score_settings, {SettingGroup::model, SettingGroup::engine});
  score->footer(
      "Examples:\n"
      "  ingot score --model DIR --tokens 5,6,7 --top 5 --json\n"
      "  ingot score --model DIR --input book.txt");
  return score;
}

CLI::App* add_tokens(CLI::App& app, Parsed& parsed) {
  CLI::App* tokens = app.add_subcommand("tokens", "token ids of a text or a conversation");
  tokens->add_option("--model", parsed.tokens.model, "a checkpoint, or any folder with a tokenizer")
      ->type_name("DIR")
      ->required();
  auto* sources = tokens->add_option_group("Input (one of them)");
  sources->add_option("--text", parsed.tokens_text, "a text")->type_name("TEXT");
  sources->add_option("--messages", parsed.tokens.messages, "chat messages (OpenAI chat format)")
      ->type_name("FILE.json");
  sources->add_option("--input", parsed.tokens.input, "a file of text")->type_name("FILE");
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
  auto* folder =
      inspect->add_option("DIR,--model", parsed.inspect_model, "folder of the checkpoint");
  folder->type_name("DIR")->required();
  inspect->add_option("--tp", parsed.inspect_tp, "also print what each of N ranks loads")
      ->type_name("N");
  inspect->add_flag("--hash", parsed.inspect.hash,
                    "also print every tensor's digest and check every scale");
  inspect->add_flag("--json", parsed.inspect.json, "print one JSON object");
  inspect->footer(
      "Example:\n"
      "  ingot inspect DIR --tp 4\n"
      "Exit status: 0 the checkpoint is whole, 2 it is not.");
  return inspect;
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
      "  ingot doctor --settings --config my.toml --top-p 0.9");
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
  // The XDG specification: a relative path is invalid and to be ignored.
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/')) {
    environment.cache_home = xdg;
    environment.cache_home_from = "XDG_CACHE_HOME";
  } else if (const std::string home = variable("HOME"); !home.empty()) {
    environment.cache_home = std::filesystem::path(home) / ".cache";
    environment.cache_home_from = "HOME";
  }
  environment.library_dirs = library_directories(variable);
  environment.editor = variable("VISUAL");
  if (environment.editor.empty()) environment.editor = variable("EDITOR");
  environment.no_color = !variable("NO_COLOR").empty();
  const std::string term = variable("TERM");
  environment.dumb_terminal = term.empty() || term == "dumb";
  return environment;
}

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

  const auto chosen_name = [&]() -> std::string {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? "ingot" : "ingot " + chosen.front()->get_name();
  };
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return PrintAndExit{chosen.empty() ? app.help() : chosen.front()->help("ingot")};
  } catch (const CLI::CallForAllHelp&) {
    return PrintAndExit{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    return PrintAndExit{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} (see `{} --help`)", one_line(error.what()), chosen_name()));
  }

  const auto settings_of = [&](const CLI::App& command, const SettingFlags& flags) {
    return resolve(command, flags, environment);
  };
  if (chat->parsed()) {
    const auto settings = settings_of(*chat, parsed.chat_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.chat.settings = settings->values();
    parsed.chat.environment = environment;
    if (chat->count("--prompt") > 0) parsed.chat.prompt = parsed.chat_prompt;
    return parsed.chat;
  }
  if (generate->parsed()) {
    const auto settings = settings_of(*generate, parsed.generate_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.generate.settings = settings->values();
    parsed.generate.environment = environment;
    return parsed.generate;
  }
  if (score->parsed()) {
    const auto settings = settings_of(*score, parsed.score_settings);
    if (!settings) return Unexpected(settings.error());
    parsed.score.settings = settings->values();
    const auto top = whole_number("--top", parsed.score_top, 0, 1000);
    if (!top) return Unexpected(top.error());
    parsed.score.top = static_cast<int>(*top);
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
  return fail(ErrorCode::invalid_argument, "a command is needed (see `ingot --help`)");
}

}  // namespace ingot
