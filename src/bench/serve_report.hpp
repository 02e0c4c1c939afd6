#pragma once

#include <cstdio>
#include <string>

#include "src/bench/bench_report.hpp"
#include "src/bench/serve_bench.hpp"

namespace ingot {

/// The head of the table, then a line for each result as it comes.
void print_serve_head(std::FILE* out);
void print_serve(const ServeResult& result, std::FILE* out);

/// One line of JSON, without a newline.
std::string serve_json(const BenchSubject& subject, const ServeResult& result);

/// "512" or "20..4000"
std::string range_text(const TokenRange& range);

}  // namespace ingot
