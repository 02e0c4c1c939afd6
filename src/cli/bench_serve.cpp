#include "src/cli/bench_serve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/bench/serve_report.hpp"
#include "src/cli/version.hpp"
#include "src/cli/write_file.hpp"
#include "src/reference/reference_engine.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {

std::vector<ServeLoad> serve_loads(const BenchOptions& options) {
  constexpr int kRounds = 4, kFewest = 8;
  std::vector<ServeLoad> loads;
  for (const int concurrency : options.concurrency) {
    loads.push_back({.concurrency = concurrency,
                     .requests = options.requests > 0 ? options.requests
                                                      : std::max(kRounds * concurrency, kFewest),
                     .input = options.input,
                     .output = options.output,
                     .seed = options.seed,
                     .prefill_chunk = options.chunk});
  }
  return loads;
}

void bench_serve(Engine& engine, const Tokenizer& tokenizer, const BenchOptions& options,
                 const BenchSubject& subject, const DecodeAlone& alone, std::FILE* out) {
  print_serve_head(out);
  std::string lines;
  for (const ServeLoad& load : serve_loads(options)) {
    ServeResult result = measure_serve(engine, tokenizer, load);
    const auto alone_at = [&](double batch) {
      return alone(std::max(1, static_cast<int>(std::lround(batch))),
                   std::llround(result.mean_context));
    };
    result.alone_tokens_per_s = alone_at(result.mean_batch());
    if (result.decode_steps > 0) {
      result.decode_alone_tokens_per_s = alone_at(result.decode_mean_batch());
    }
    print_serve(result, out);
    lines += serve_json(subject, result) + "\n";
  }
  if (!options.json.empty()) write_file(options.json, lines);
}

int run_bench_serve_on_cpu(const BenchOptions& options, std::FILE* out) {
  if (options.checkpoint.empty()) {
    throw EngineError(ErrorCode::invalid_argument,
                      "bench serve --synthetic: made-up weights are made on a GPU; for the CPU "
                      "write a checkpoint with `ingot synth` and name it with --model");
  }
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Checkpoint checkpoint = value_or_throw(open_checkpoint(options.checkpoint));
  value_or_throw(check_tp_size(checkpoint.config(), options.tp_size));
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(options.checkpoint));
  const auto folder = std::filesystem::absolute(options.checkpoint).lexically_normal();
  BenchSubject subject{
      .device = "CPU",
      .arch = "",
      .driver_branch = "",
      .compiler = "",
      .version = std::string(kVersion),
      .model = (folder.has_filename() ? folder : folder.parent_path()).filename().string(),
      .layers = checkpoint.config().num_layers,
      .tp_size = options.tp_size,
      .rates = {}};
  const ModelConfig& config = checkpoint.config();
  const std::int64_t context = std::min<std::int64_t>(options.input.most + options.output.most,
                                                      config.max_position_embeddings);
  const auto engine = make_reference_engine(
      std::move(checkpoint),
      {.threads = options.threads, .tp_size = options.tp_size, .max_context = context});
  subject.ready_s = std::chrono::duration<double>(Clock::now() - begin).count();
  fmt::print(out, "the CPU, {} threads: {}, {} layers, its own weights, TP {}: ready in {:.1f} s\n",
             options.threads, subject.model, subject.layers, subject.tp_size, subject.ready_s);
  constexpr int kSteps = 4;
  bench_serve(
      *engine, tokenizer, options, subject,
      [&](int batch, std::int64_t mean) {
        return decode_tokens_per_s(*engine, batch,
                                   std::clamp<std::int64_t>(mean, 0, context - kSteps - 1), kSteps);
      },
      out);
  return 0;
}

}  // namespace ingot
