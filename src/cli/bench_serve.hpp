#pragma once

#include <cstdio>
#include <functional>

#include "src/bench/bench_report.hpp"
#include "src/bench/serve_bench.hpp"
#include "src/cli/bench_command.hpp"

namespace ingot {

/// What `ingot bench serve` measures, one load for each concurrency.
std::vector<ServeLoad> serve_loads(const BenchOptions& options);

/// Tokens a second of decode steps alone, of the batch and context that a load had in the mean.
using DecodeAlone = std::function<double(int batch, std::int64_t context)>;

/// Measures every load, prints a line for each and writes the JSON lines that the options ask for.
void bench_serve(Engine& engine, const Tokenizer& tokenizer, const BenchOptions& options,
                 const BenchSubject& subject, const DecodeAlone& alone, std::FILE* out);

/// `ingot bench serve` with the reference engine. Throws EngineError; invalid_argument for weights
/// that are made up on a GPU.
int run_bench_serve_on_cpu(const BenchOptions& options, std::FILE* out);

}  // namespace ingot
