#include "src/cli/bench_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/log.hpp"
#include "runtime/base/shared_library.hpp"
#include "src/bench/bench_report.hpp"
#include "src/bench/decode_bench.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/cli/bench_kernels.hpp"
#include "src/cli/bench_serve.hpp"
#include "src/cli/device.hpp"
#include "src/cli/device_loader.hpp"
#include "src/cli/kernel_overrides.hpp"
#include "src/cli/local_cards.hpp"
#include "src/cli/version.hpp"
#include "src/cli/write_file.hpp"
#include "src/executor/memory_costs.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "src/weights/tensor_table.hpp"
#include "tuner/tune.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

/// The first layers of a model, without its draft.
ModelConfig cut_to_layers(ModelConfig config, int layers) {
  config.num_mtp_layers = 0;
  config.draft = DraftKind::none;
  if (layers > config.num_layers) {
    throw EngineError(ErrorCode::invalid_argument,
                      fmt::format("--layers {}: the model has {}; give at most that many", layers,
                                  config.num_layers));
  }
  if (layers > 0) config.num_layers = layers;
  config.num_hash_layers = std::min(config.num_hash_layers, config.num_layers);
  config.compress_ratios.resize(static_cast<std::size_t>(config.num_layers));
  return config;
}

std::vector<DecodeCell> cells_of(const BenchOptions& options) {
  std::vector<DecodeCell> cells;
  for (const std::int64_t context : options.contexts)
    for (const int batch : options.batches)
      cells.push_back({.batch = batch, .context = context});
  return cells;
}

/// Cells that fit into the memory together with the weights; the others are told of in `refused`.
std::vector<DecodeCell> cells_that_fit(const BenchOptions& options, const ModelConfig& config,
                                       std::uint64_t free_bytes,
                                       std::vector<DecodeResult>& refused) {
  std::vector<DecodeCell> fit;
  for (const DecodeCell& cell : cells_of(options)) {
    if (cell.context > config.max_position_embeddings) {
      refused.push_back({.cell = cell,
                         .refusal = fmt::format("the model's context is {} tokens",
                                                config.max_position_embeddings),
                         .timing = {},
                         .floor = {}});
      continue;
    }
    const auto plan = executor::plan_rank_memory(fmt::format("a batch of {}", cell.batch), config,
                                                 options.tp_size,
                                                 {.sequences = cell.batch,
                                                  .max_context = cell.context,
                                                  .context_tokens = context_tokens_of({cell})},
                                                 kMostNarrowRows, free_bytes);
    if (plan) {
      fit.push_back(cell);
    } else {
      refused.push_back({.cell = cell, .refusal = plan.error().message, .timing = {}, .floor = {}});
    }
  }
  return fit;
}

class BenchRun {
 public:
  BenchRun(const BenchOptions& options, std::shared_ptr<const cu::DriverApi> driver,
           KernelSource source, std::string compiler, std::FILE* out)
      : options_(options),
        driver_(std::move(driver)),
        context_(cu::Context::retain(driver_, 0)),
        source_(std::move(source)),
        out_(out) {
    subject_.device = context_.device().name;
    subject_.arch = source_.device.arch;
    subject_.driver_branch = source_.device.driver_branch;
    subject_.compiler = std::move(compiler);
    subject_.version = kVersion;
    subject_.tp_size = options.tp_size;
    open_model();
    value_or_throw(check_overrides(source_.overrides, config_, options.tp_size, buckets(),
                                   cu::limits_of(context_.device())));
    for (const std::string& pin : options.pins)
      subject_.forced.push_back("--pin " + pin);
    for (const std::string& family : options.disabled)
      subject_.forced.push_back("--disable " + family);
    if (options.deterministic && options.what != BenchOptions::What::decode)
      subject_.forced.push_back("--deterministic");
  }

  void measure_rates(const RatePolicy& policy) {
    subject_.rates = measure_card_rates(context_, *source_.kernels, source_.device.arch, policy);
  }

  void decode() {
    std::vector<DecodeResult> results, deterministic;
    const std::vector<DecodeCell> cells =
        cells_that_fit(options_, config_, context_.free_bytes(), results);
    if (!cells.empty()) {
      std::int64_t longest = 0;
      int widest = 1;
      for (const DecodeCell& cell : cells) {
        longest = std::max(longest, cell.context);
        widest = std::max(widest, cell.batch);
      }
      const auto engine = start({.max_context = longest,
                                 .max_sequences = widest,
                                 .context_tokens = context_tokens_of(cells),
                                 .step_rows = kMostNarrowRows,
                                 .jobs = options_.threads});
      engine->fill_context();
      const auto measure = [&](std::vector<DecodeResult>& to) {
        for (const DecodeCell& cell : cells) {
          to.push_back(
              measure_decode(*engine, options_.tp_size, cell, options_.steps, subject_.rates));
        }
      };
      measure(results);
      if (options_.deterministic) {
        engine->set_deterministic(true);
        measure(deterministic);
        for (DecodeResult& result : deterministic)
          result.deterministic = true;
      }
      stats_ = engine->stats();
    }
    report(results, deterministic);
  }

  void prefill() {
    const auto engine = start({.max_context = options_.tokens,
                               .max_sequences = 2,
                               .context_tokens = 2 * options_.tokens,
                               .step_rows = step_rows(),
                               .jobs = options_.threads,
                               .deterministic = options_.deterministic});
    const PrefillResult result =
        measure_prefill(*engine, options_.tp_size, options_.tokens, options_.chunk, subject_.rates);
    stats_ = engine->stats();
    print_subject(subject_, out_);
    print_prefill(result, out_);
    print_memory();
    if (!options_.json.empty()) write_file(options_.json, prefill_json(subject_, result) + "\n");
    const double weight_bytes = static_cast<double>(stats_.weight_bytes);
    write_svg({{.label = fmt::format("{} tokens", result.tokens),
                .operations_per_byte = result.operations / weight_bytes,
                .operations_per_us = result.operations / result.us}});
  }

  void serve() {
    const int widest = *std::max_element(options_.concurrency.begin(), options_.concurrency.end());
    const std::int64_t longest = options_.input.most + options_.output.most;
    const DecodeCell all{.batch = widest, .context = longest};
    // Decode steps alone are as long again as they are timed for, behind some tokens.
    constexpr std::int64_t kFewestBefore = 8;
    const std::int64_t timed = timed_decode_tokens(options_.steps);
    const std::int64_t context = std::min<std::int64_t>(std::max(longest, kFewestBefore) + timed,
                                                        config_.max_position_embeddings);
    const auto engine = start({.max_context = context,
                               .max_sequences = widest,
                               .context_tokens = context_tokens_of({all}),
                               .step_rows = step_rows(),
                               .jobs = options_.threads,
                               .deterministic = options_.deterministic});
    const Tokenizer tokenizer = subject_.synthetic
                                    ? made_up_tokenizer(config_.vocab_size)
                                    : value_or_throw(Tokenizer::load(options_.checkpoint));
    print_subject(subject_, out_);
    bench_serve(
        *engine, tokenizer, options_, subject_,
        [&](int batch, std::int64_t mean) {
          // Its sequences end where the others are in the mean.
          const DecodeCell cell{.batch = batch, .context = std::max(mean, timed + kFewestBefore)};
          const DecodeResult result =
              measure_decode(*engine, options_.tp_size, cell, options_.steps, subject_.rates);
          return result.refusal.empty() ? result.tokens_per_s() : 0.0;
        },
        out_);
    stats_ = engine->stats();
    print_memory();
  }

 private:
  /// Rows of the largest pass of a prompt's chunk.
  int step_rows() const {
    return options_.deterministic ? kBatchFreeRows : step_rows_of(options_.chunk);
  }

  /// Steps that will be measured, one of each size at least.
  std::vector<StepBucket> buckets() const {
    std::vector<StepBucket> all;
    const auto add = [&](int rows, bool prompt, std::int64_t context) {
      rows = std::min(rows, kMostStepRows);
      all.push_back(bucket_of({.rows = rows,
                               .sequences = prompt ? 1 : rows,
                               .sequence_rows = prompt ? rows : 1,
                               .logit_rows = prompt ? 1 : rows,
                               .context = context},
                              config_.max_position_embeddings));
    };
    if (options_.what == BenchOptions::What::decode) {
      for (const DecodeCell& cell : cells_of(options_))
        add(cell.batch, false, cell.context);
      return all;
    }
    const bool serve = options_.what == BenchOptions::What::serve;
    const std::int64_t context =
        serve ? options_.input.most + options_.output.most : options_.tokens;
    add(options_.chunk, true, context);
    for (const int concurrency : serve ? options_.concurrency : std::vector<int>{})
      add(concurrency, false, context);
    return all;
  }

  void open_model() {
    if (options_.checkpoint.empty()) {
      subject_.synthetic = true;
      config_ =
          cut_to_layers(value_or_throw(read_model_config(options_.config_json)), options_.layers);
      const auto folder = std::filesystem::absolute(options_.config_json).parent_path();
      subject_.model = folder.filename().string();
    } else {
      checkpoint_.emplace(value_or_throw(open_checkpoint(options_.checkpoint)));
      config_ = checkpoint_->config();
      const auto folder = std::filesystem::absolute(options_.checkpoint).lexically_normal();
      subject_.model = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    }
    value_or_throw(check_tp_size(config_, options_.tp_size));
    subject_.layers = config_.num_layers;
  }

  Result<executor::DeviceWeights> weights(const cu::Context& context, int rank) const {
    const executor::WeightOptions options{
        .tp_rank = rank,
        .tp_size = options_.tp_size,
        .threads = std::max(1, options_.threads / options_.tp_size)};
    return subject_.synthetic ? executor::DeviceWeights::synthetic(context, config_, options)
                              : executor::DeviceWeights::load(context, *checkpoint_, options);
  }

  std::unique_ptr<DeviceEngine> start(DeviceOptions wanted) {
    const auto begin = Clock::now();
    std::vector<cu::Context> contexts;
    for (int rank = 0; rank < options_.tp_size; ++rank)
      contexts.push_back(cu::Context::retain(driver_, rank));
    wanted.nccl = value_or_throw(exchange_carrier(contexts, options_.cache));
    const auto loading_from = Clock::now();
    auto ranks =
        value_or_throw(make_ranks(std::move(contexts), [&](const cu::Context& context, int rank) {
          return weights(context, rank);
        }));
    const std::chrono::duration<double> loading = Clock::now() - loading_from;
    load_s_ = loading.count();
    KernelSource source = source_;
    auto engine =
        std::make_unique<DeviceEngine>(std::move(ranks), config_, std::move(source), wanted);
    const auto first = engine->create_sequence();
    const std::vector<TokenId> token{0};
    const SequenceStep step{.sequence = first, .tokens = token};
    (void)engine->step({&step, 1});
    engine->release(first);
    const std::chrono::duration<double> all = Clock::now() - begin;
    subject_.ready_s = all.count();
    return engine;
  }

  void report(const std::vector<DecodeResult>& results,
              const std::vector<DecodeResult>& deterministic) {
    print_subject(subject_, out_);
    print_decode(results, out_);
    if (!deterministic.empty()) {
      print_decode(deterministic, out_);
      print_determinism(results, deterministic, out_);
    }
    print_memory();
    if (!options_.json.empty()) {
      std::string lines;
      for (const auto* list : {&results, &deterministic})
        for (const DecodeResult& result : *list)
          lines += decode_json(subject_, result) + "\n";
      write_file(options_.json, lines);
    }
    std::vector<RooflinePoint> points;
    for (const DecodeResult& r : results) {
      if (!r.refusal.empty()) continue;
      points.push_back({.label = fmt::format("{} x {}", r.cell.batch, tokens_text(r.cell.context)),
                        .operations_per_byte = r.floor.operations / r.floor.bytes,
                        .operations_per_us = r.floor.operations / r.timing.step_us});
    }
    write_svg(points);
  }

  void print_memory() const {
    const auto gigabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    fmt::print(out_,
               "\nweights {:.2f} GB in {:.2f} s ({:.2f} GB/s), state {:.2f} GB for {} tokens, "
               "buffers {:.2f} GB, {} graphs {:.3f} GB; {} kernels compiled, {} of {} steps from "
               "graphs\n",
               gigabytes(stats_.weight_bytes), load_s_, gigabytes(stats_.weight_bytes) / load_s_,
               gigabytes(stats_.state_bytes), stats_.context_tokens, gigabytes(stats_.buffer_bytes),
               stats_.graphs, gigabytes(stats_.graph_bytes), stats_.kernels_compiled,
               stats_.graph_steps, stats_.steps);
  }

  void write_svg(const std::vector<RooflinePoint>& points) const {
    if (!options_.svg.empty()) write_file(options_.svg, roofline_svg(subject_, points));
  }

  const BenchOptions& options_;
  const std::shared_ptr<const cu::DriverApi> driver_;
  const cu::Context context_;
  KernelSource source_;
  std::FILE* out_;
  std::optional<Checkpoint> checkpoint_;
  ModelConfig config_;
  BenchSubject subject_;
  DeviceStats stats_;
  double load_s_ = 0;
};

}  // namespace

int run_bench_on(const BenchOptions& options, std::shared_ptr<const cu::DriverApi> driver,
                 KernelSource source, const std::string& compiler, const RatePolicy& rates,
                 std::FILE* out) {
  BenchRun bench(options, std::move(driver), std::move(source), compiler, out);
  bench.measure_rates(rates);
  switch (options.what) {
    case BenchOptions::What::decode:
      bench.decode();
      break;
    case BenchOptions::What::prefill:
      bench.prefill();
      break;
    case BenchOptions::What::serve:
      bench.serve();
      break;
    case BenchOptions::What::kernels:
      break;  // bench_kernels() measures them
  }
  return 0;
}

int run_bench(const BenchOptions& options, std::FILE* out) {
  for (const auto& file : {options.json, options.svg})
    value_or_throw(check_new_file(file, options.force));
  Overrides overrides = value_or_throw(read_overrides(options.pins, options.disabled));
  if (options.what == BenchOptions::What::serve) {
    const DeviceChoice choice = value_or_throw(choose_device(
        options.device, value_or_throw(device_list("", options.tp_size)), options.environment));
    if (options.device == "auto") log::info("{}", device_notice(choice));
    if (choice.device == Device::cpu) {
      if (!overrides.empty()) {
        log::warn(
            "the model runs on the CPU, which has no kernels: --pin and --disable have no say");
      }
      return run_bench_serve_on_cpu(options, out);
    }
  }
  const auto gpu =
      usable_gpu(value_or_throw(device_list("", options.tp_size)), options.environment);
  if (!gpu) {
    throw EngineError(
        ErrorCode::unsupported,
        fmt::format("bench measures on a GPU: {}; `ingot doctor` shows more", gpu.error().message));
  }
  const auto driver =
      value_or_throw(cu::DriverApi::open(library_search_path(options.cache.library_dirs)));
  auto card = value_or_throw(card_of(*driver, cu::list_devices(*driver).at(0)));
  KernelSource source{
      .kernels = value_or_throw(open_kernel_store(options.cache, options.threads)),
      .records = open_tuning_store(options.cache),
      .device = std::move(card.device),
      .policy = policy_text(SearchPolicy{}, MeasurePolicy{}),
      .overrides = std::move(overrides),
  };
  const auto nvrtc = find_nvrtc(options.cache);
  if (options.what == BenchOptions::What::kernels) {
    return bench_kernels(options, driver, source, nvrtc ? nvrtc->version : std::string(),
                         RatePolicy{}, out);
  }
  return run_bench_on(options, driver, std::move(source), nvrtc ? nvrtc->version : std::string(),
                      RatePolicy{}, out);
}

}  // namespace ingot
