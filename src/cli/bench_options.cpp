#include "src/cli/bench_options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>
#include <tuple>

#include "src/cli/kernel_options.hpp"
#include "src/cli/numbers.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot {
namespace {

constexpr std::int64_t kMostTokens = 1 << 24;

void add_common(CLI::App* what, BenchFlags& flags) {
  auto* sources = what->add_option_group("Model (one of them)");
  sources->add_option("--model", flags.model, "folder of a checkpoint")->type_name("DIR");
  sources->add_flag("--synthetic", flags.synthetic,
                    "made-up weights of the shape that --config gives");
  sources->require_option(1);
  what->add_option("--config", flags.config, "of --synthetic: the model's config.json")
      ->type_name("FILE");
  what->add_option("--layers", flags.layers, "of --synthetic: its first N layers alone")
      ->type_name("N");
  what->add_option("--tp", flags.tp, "tensor parallel ranks (default 1)")->type_name("N");
  what->add_option("--jobs", flags.jobs,
                   "kernels compiled and shards loaded at a time (default: one for each CPU)")
      ->type_name("N");
  what->add_option("--pin", flags.pins,
                   "force a parameter, and its family, wherever the value is legal; repeatable")
      ->type_name("FAMILY.PARAM=VALUE")
      ->allow_extra_args(false);
  what->add_option("--disable", flags.disabled, "leave a kernel family out; repeatable")
      ->type_name("FAMILY")
      ->allow_extra_args(false);
  what->add_option("--template-dir", flags.template_dir,
                   "kernel templates to use instead of those built in")
      ->type_name("DIR");
  what->add_option("--json", flags.json, "also write JSON lines")->type_name("FILE");
  what->add_option("--svg", flags.svg, "also draw a roofline")->type_name("FILE");
  what->add_flag("--force", flags.force, "replace existing files of --json and --svg");
}

/// "512" or "20..4000"
Result<TokenRange> parse_range(const char* flag, const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto least = parse_number(flag, text.substr(0, dots), 1, kMostTokens);
  if (!least) return Unexpected(least.error());
  if (dots == std::string::npos) return TokenRange{.least = *least, .most = *least};
  const auto most = parse_number(flag, text.substr(dots + 2), *least, kMostTokens);
  if (!most) return Unexpected(most.error());
  return TokenRange{.least = *least, .most = *most};
}

void add_deterministic(CLI::App* what, BenchFlags& flags) {
  what->add_flag("--deterministic", flags.deterministic,
                 "answers do not depend on what runs beside them; decode is measured both ways");
}

}  // namespace

CLI::App* add_bench(CLI::App& app, BenchFlags& flags) {
  CLI::App* bench = app.add_subcommand("bench", "measure steps against this GPU's own limits");
  bench->require_subcommand(1);
  bench->fallthrough();  // settings may stand behind the subcommand too
  CLI::App* decode = bench->add_subcommand("decode", "decode steps by batch and context");
  add_common(decode, flags);
  add_deterministic(decode, flags);
  decode->add_option("--batch", flags.batch, "sequences of a step (default " + flags.batch + ")")
      ->type_name("N[,N]");
  decode
      ->add_option("--context", flags.context,
                   "tokens of each sequence (default " + flags.context + ")")
      ->type_name("N[,N]");
  decode->add_option("--steps", flags.steps, "that are timed (default " + flags.steps + ")")
      ->type_name("N");
  decode->add_flag("--trace", flags.trace,
                   "also show what each kind of launch adds to a step: its kernels stamp the time, "
                   "which costs a little");
  CLI::App* prefill = bench->add_subcommand("prefill", "one prompt");
  add_common(prefill, flags);
  add_deterministic(prefill, flags);
  prefill->add_option("--tokens", flags.tokens, "of the prompt (default " + flags.tokens + ")")
      ->type_name("N");
  prefill->add_option("--chunk", flags.chunk, "of them in one step (default " + flags.chunk + ")")
      ->type_name("N");
  CLI::App* kernels = bench->add_subcommand("kernels", "the kernels of decode steps, one by one");
  add_common(kernels, flags);
  kernels
      ->add_option("--family", flags.families,
                   "only families whose names begin so (default: all of a step)")
      ->type_name("NAME[,NAME]");
  kernels
      ->add_option("--heads", flags.heads,
                   "attention heads of a rank, each a TP size (default: those of --tp)")
      ->type_name("N[,N]");
  kernels->add_option("--batch", flags.batch, "rows of a launch (default " + flags.batch + ")")
      ->type_name("N[,N]");
  kernels
      ->add_option("--keys", flags.keys,
                   "tokens behind each row, of which a kernel reads what its layers select "
                   "(default " +
                       flags.keys + ")")
      ->type_name("N[,N]");
  kernels
      ->add_option("--prompt-rows", flags.prompt_rows,
                   "also steps of so many tokens of one prompt (default: none)")
      ->type_name("N[,N]");
  kernels->add_flag("--all-candidates", flags.all_candidates,
                    "check and time everything that tuning may try");
  CLI::App* serve = bench->add_subcommand(
      "serve", "the scheduler: as many requests at a time, each followed by the next");
  add_common(serve, flags);
  add_deterministic(serve, flags);
  serve
      ->add_option("--concurrency", flags.concurrency,
                   "requests at a time (default " + flags.concurrency + ")")
      ->type_name("N[,N]");
  serve
      ->add_option("--input", flags.input,
                   "tokens of a prompt, or a range of them (default " + flags.input + ")")
      ->type_name("N|N..N");
  serve
      ->add_option("--output", flags.output,
                   "tokens of an answer, or a range of them (default " + flags.output + ")")
      ->type_name("N|N..N");
  serve
      ->add_option("--requests", flags.requests,
                   "that are measured (default: four times as many as run at a time, at least 8)")
      ->type_name("N");
  serve
      ->add_option("--seed", flags.seed,
                   "of lengths and prompts: same seed, same requests (default " + flags.seed + ")")
      ->type_name("N");
  serve
      ->add_option("--chunk", flags.chunk,
                   "of a prompt's tokens in one step (default " + flags.chunk + ")")
      ->type_name("N");
  serve
      ->add_option("--steps", flags.steps,
                   "of decode alone that are timed beside (default " + flags.steps + ")")
      ->type_name("N");
  serve->add_option("--device", flags.device, "where the model runs (default auto)")
      ->check(CLI::IsMember({"auto", "cuda", "cpu"}));
  bench->footer(
      "Examples:\n"
      "  ingot bench decode --model DIR --batch 1,16,64 --context 2K,32K\n"
      "  ingot bench decode --synthetic --config config.json --layers 36 --svg roofline.svg\n"
      "  ingot bench prefill --model DIR --tokens 8K --chunk 2K\n"
      "  ingot bench kernels --synthetic --config config.json --family sparse_mla --heads 64,8\n"
      "  ingot bench serve --model DIR --concurrency 1,16,64 --input 20..4000 --output 1..500\n"
      "The floor of a step is what reading its bytes takes on this card, or multiplying, whichever "
      "is\nlonger; both rates are measured first. Exit status: 0 measured, 1 failed, 2 wrong usage "
      "or no GPU.");
  return bench;
}

Result<BenchOptions> bench_options(const CLI::App& bench, const BenchFlags& flags,
                                   const Settings& settings, const Environment& environment) {
  BenchOptions options;
  const CLI::App* what = bench.get_subcommands().front();
  const bool kernels = what->get_name() == "kernels";
  options.what = kernels                         ? BenchOptions::What::kernels
                 : what->get_name() == "decode"  ? BenchOptions::What::decode
                 : what->get_name() == "prefill" ? BenchOptions::What::prefill
                                                 : BenchOptions::What::serve;
  options.cache = kernel_cache_options(settings, environment);
  options.cache.template_dir = flags.template_dir;
  options.cache.traced = flags.trace;
  options.environment = environment;
  if (flags.synthetic && flags.config.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--synthetic needs the model's shape: --config FILE names its config.json");
  }
  if (!flags.synthetic && !(flags.config.empty() && flags.layers.empty())) {
    return fail(ErrorCode::invalid_argument,
                "--config and --layers belong to --synthetic: give it, or leave them out");
  }
  options.checkpoint = flags.model;
  options.config_json = flags.config;
  const auto take = [](auto& to, const char* flag, const std::string& text, std::int64_t low,
                       std::int64_t high) -> Result<void> {
    const auto value = parse_number(flag, text, low, high);
    if (!value) return Unexpected(value.error());
    to = static_cast<std::remove_reference_t<decltype(to)>>(*value);
    return {};
  };
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Result<void> taken = take(options.tp_size, "--tp", flags.tp, 1, 64);
  if (taken && !flags.layers.empty())
    taken = take(options.layers, "--layers", flags.layers, 1, 1024);
  if (taken && !flags.jobs.empty()) taken = take(options.threads, "--jobs", flags.jobs, 1, 1024);
  if (taken) taken = take(options.steps, "--steps", flags.steps, 1, 10000);
  if (taken) taken = take(options.tokens, "--tokens", flags.tokens, 1, kMostTokens);
  if (taken) taken = take(options.chunk, "--chunk", flags.chunk, 1, kMostTokens);
  if (taken) taken = take(options.seed, "--seed", flags.seed, 0, INT64_MAX);
  if (!taken) return Unexpected(taken.error());
  auto batches = parse_numbers<int>("--batch", flags.batch, 1, 256);
  if (!batches) return Unexpected(batches.error());
  options.batches = std::move(*batches);
  auto contexts = kernels ? parse_numbers<std::int64_t>("--keys", flags.keys, 1, kMostTokens)
                          : parse_numbers<std::int64_t>("--context", flags.context, 1, kMostTokens);
  if (!contexts) return Unexpected(contexts.error());
  options.contexts = std::move(*contexts);
  auto concurrency = parse_numbers<int>("--concurrency", flags.concurrency, 1, 1024);
  if (!concurrency) return Unexpected(concurrency.error());
  options.concurrency = std::move(*concurrency);
  for (const auto& [flag, text, range] : {std::tuple{"--input", &flags.input, &options.input},
                                          std::tuple{"--output", &flags.output, &options.output}}) {
    const auto parsed = parse_range(flag, *text);
    if (!parsed) return Unexpected(parsed.error());
    *range = *parsed;
  }
  if (!flags.requests.empty()) {
    taken = take(options.requests, "--requests", flags.requests, 1, 1000000);
    if (!taken) return Unexpected(taken.error());
  }
  options.device = flags.device;
  options.families = split_words(flags.families);
  if (!flags.heads.empty()) {
    auto heads = parse_numbers<int>("--heads", flags.heads, 1, 1024);
    if (!heads) return Unexpected(heads.error());
    options.heads = std::move(*heads);
  }
  if (!flags.prompt_rows.empty()) {
    auto rows = parse_numbers<int>("--prompt-rows", flags.prompt_rows, 1, kMostStepRows);
    if (!rows) return Unexpected(rows.error());
    options.prompt_rows = std::move(*rows);
  }
  options.all_candidates = flags.all_candidates;
  options.pins = flags.pins;
  options.disabled = flags.disabled;
  options.deterministic = flags.deterministic;
  options.json = flags.json;
  options.svg = flags.svg;
  options.force = flags.force;
  return options;
}

}  // namespace ingot
