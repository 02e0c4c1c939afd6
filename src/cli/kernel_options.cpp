#include "src/cli/kernel_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "runtime/jit/arch.hpp"
#include "src/cli/numbers.hpp"

namespace ingot {
namespace {

constexpr std::int64_t kMostTokens = 1 << 24;
constexpr std::int64_t kMostMebibytes = std::int64_t{1} << 30;

Result<std::vector<std::string>> archs(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& word : split_words(text)) {
    auto name = jit::parse_arch(word);
    if (!name) return Unexpected(name.error());
    names.push_back(std::move(*name));
  }
  return names;
}

}  // namespace

KernelCacheOptions kernel_cache_options(const Settings& settings, const Environment& environment) {
  KernelCacheOptions options;
  if (!settings.cache_dirs.empty()) {
    options.cache_dirs.assign(settings.cache_dirs.begin(), settings.cache_dirs.end());
  } else if (!settings.cache_dir.empty()) {
    options.cache_dirs.emplace_back(settings.cache_dir);
  }
  options.library_dirs = environment.library_dirs;
  options.frozen = settings.frozen;
  return options;
}

CLI::App* add_prewarm(CLI::App& app, PrewarmFlags& flags) {
  CLI::App* prewarm = app.add_subcommand("prewarm", "compile a model's kernels ahead of time");
  auto* sources = prewarm->add_option_group("Model (one of them)");
  sources->add_option("--model", flags.model, "folder of the checkpoint; only its config.json")
      ->type_name("DIR");
  sources->add_option("--config", flags.config, "the config.json alone")->type_name("FILE");
  sources->require_option(1);
  prewarm
      ->add_option("--arch", flags.archs,
                   "architectures; default: those of this machine's cards; needs no GPU")
      ->type_name("sm_90a[,sm_120a]");
  prewarm->add_option("--tp", flags.tp, "tensor parallel ranks (default 1)")->type_name("N");
  prewarm
      ->add_option(
          "--batch", flags.batch,
          "batch buckets; above 256 tokens of a prompt alone (default " + flags.batch + ")")
      ->type_name("N[,N]");
  prewarm->add_option("--context", flags.context, "context buckets (default " + flags.context + ")")
      ->type_name("N[,N]");
  prewarm->add_option("--jobs", flags.jobs, "compiles at a time (default: one for each CPU)")
      ->type_name("N");
  prewarm->add_flag("--all-candidates", flags.all_candidates,
                    "compile everything that tuning may try, not the defaults alone");
  prewarm
      ->add_option("--time-budget", flags.time_budget,
                   "tune for so long at most, the largest shares of a step first; another run goes "
                   "on from there; 0 tunes nothing (default: until everything is tuned)")
      ->type_name("SECONDS");
  prewarm->add_flag("--retune", flags.retune, "tune again what has been tuned");
  prewarm->add_flag("--dry-run", flags.dry_run, "say how many kernels, how long and how big");
  prewarm
      ->add_option("--template-dir", flags.template_dir,
                   "kernel templates to use instead of those built in")
      ->type_name("DIR");
  prewarm
      ->add_option("--pin", flags.pins,
                   "force a parameter, and its family, wherever the value is legal; repeatable")
      ->type_name("FAMILY.PARAM=VALUE")
      ->allow_extra_args(false);
  prewarm->add_option("--disable", flags.disabled, "leave a kernel family out; repeatable")
      ->type_name("FAMILY")
      ->allow_extra_args(false);
  prewarm->add_flag("--json", flags.json, "print JSON lines");
  prewarm->footer(
      "Examples:\n"
      "  ingot prewarm --model DIR\n"
      "  ingot prewarm --config config.json --arch sm_90a,sm_120a --jobs 8\n"
      "  ingot prewarm --model DIR --time-budget 600\n"
      "On a machine with a GPU kernels are tuned for it; for an --arch they are compiled with "
      "their "
      "defaults, and\n`ingot cache import` of a bundle brings the choices that were made on "
      "another "
      "machine.\n"
      "Exit status: 0 every kernel is in the cache, 1 some failed to compile, 2 wrong usage.");
  return prewarm;
}

Result<PrewarmOptions> prewarm_options(const PrewarmFlags& flags, const Settings& settings,
                                       const Environment& environment) {
  PrewarmOptions options;
  options.cache = kernel_cache_options(settings, environment);
  options.cache.template_dir = flags.template_dir;
  options.config_json = flags.config.empty() ? std::filesystem::path(flags.model) / "config.json"
                                             : std::filesystem::path(flags.config);
  auto names = archs(flags.archs);
  if (!names) return Unexpected(names.error());
  options.archs = std::move(*names);
  const auto tp = parse_number("--tp", flags.tp, 1, 64);
  if (!tp) return Unexpected(tp.error());
  options.tp_size = static_cast<int>(*tp);
  auto batch = parse_numbers<int>("--batch", flags.batch, 1, 4096);
  if (!batch) return Unexpected(batch.error());
  options.batch_buckets = std::move(*batch);
  auto context = parse_numbers<std::int64_t>("--context", flags.context, 1, kMostTokens);
  if (!context) return Unexpected(context.error());
  options.context_buckets = std::move(*context);
  options.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (!flags.jobs.empty()) {
    const auto jobs = parse_number("--jobs", flags.jobs, 1, 1024);
    if (!jobs) return Unexpected(jobs.error());
    options.jobs = static_cast<int>(*jobs);
  }
  if (!flags.time_budget.empty()) {
    const auto seconds = parse_number("--time-budget", flags.time_budget, 0, 1000000);
    if (!seconds) return Unexpected(seconds.error());
    options.time_budget_s = static_cast<double>(*seconds);
  }
  options.retune = flags.retune;
  options.all_candidates = flags.all_candidates;
  options.dry_run = flags.dry_run;
  options.pins = flags.pins;
  options.disabled = flags.disabled;
  options.json = flags.json;
  return options;
}

CLI::App* add_cache(CLI::App& app, CacheFlags& flags) {
  CLI::App* cache = app.add_subcommand("cache", "look after the kernel cache");
  cache->require_subcommand(1);
  cache->fallthrough();  // settings may stand behind the action too
  cache->add_flag("--json", flags.json, "print JSON");
  const auto add_arch = [&](CLI::App* action) {
    action->add_option("--arch", flags.archs, "only this architecture")
        ->type_name("sm_90a[,sm_120a]");
  };
  CLI::App* list =
      cache->add_subcommand("list", "every entry: family, parameters, registers, size");
  add_arch(list);
  list->add_flag("--table", flags.table, "the tuning choices alone, as tables in Markdown");
  cache->add_subcommand("verify", "read every entry; exit status 1 if one is damaged");
  CLI::App* explain =
      cache->add_subcommand("explain", "why a look-up hits or misses, by the nearest entry");
  explain->add_option("FAMILY", flags.family, "kernel family")->required();
  explain->add_option("PARAMS", flags.params, "NAME=VALUE; others have their defaults");
  explain->add_option("--arch", flags.archs, "architecture")->type_name("sm_90a")->required();
  CLI::App* gc = cache->add_subcommand("gc", "remove what is damaged, unused for long or too much");
  gc->add_option("--max-size", flags.max_size, "MiB that may stay (default 4096)")->type_name("N");
  gc->add_option("--max-age", flags.max_age, "days without use (default 90)")->type_name("N");
  CLI::App* out = cache->add_subcommand("export", "write the cache to one file");
  out->add_option("FILE", flags.file, "the bundle")->required();
  out->add_flag("--force", flags.force, "replace an existing file");
  add_arch(out);
  cache->add_subcommand("import", "add a bundle's entries to the cache, each checked")
      ->add_option("FILE", flags.file, "the bundle")
      ->required();
  cache->footer(
      "Examples:\n"
      "  ingot cache list --arch sm_90a\n"
      "  ingot cache list --table > choices.md\n"
      "  ingot cache explain rms_norm HIDDEN=512 --arch sm_90a\n"
      "  ingot cache export kernels.bundle");
  return cache;
}

Result<CacheOptions> cache_options(const CLI::App& cache, const CacheFlags& flags,
                                   const Settings& settings, const Environment& environment) {
  using Action = CacheOptions::Action;
  const std::string action = cache.get_subcommands().front()->get_name();
  CacheOptions options;
  options.cache = kernel_cache_options(settings, environment);
  options.action = action == "list"      ? Action::list
                   : action == "verify"  ? Action::verify
                   : action == "explain" ? Action::explain
                   : action == "gc"      ? Action::gc
                   : action == "export"  ? Action::export_bundle
                                         : Action::import_bundle;
  auto names = archs(flags.archs);
  if (!names) return Unexpected(names.error());
  options.archs = std::move(*names);
  options.family = flags.family;
  options.params = flags.params;
  options.file = flags.file;
  options.force = flags.force;
  const auto size = parse_number("--max-size", flags.max_size, 0, kMostMebibytes);
  if (!size) return Unexpected(size.error());
  options.most_bytes = static_cast<std::uint64_t>(*size) << 20;
  const auto age = parse_number("--max-age", flags.max_age, 0, 100000);
  if (!age) return Unexpected(age.error());
  options.most_age = std::chrono::hours(24 * *age);
  options.table = flags.table;
  options.json = flags.json;
  if (options.table && options.json)
    return fail(ErrorCode::invalid_argument, "--table and --json exclude each other: give one");
  return options;
}

}  // namespace ingot
