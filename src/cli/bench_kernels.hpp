#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "src/cli/bench_command.hpp"

namespace ingot {

/// `ingot bench kernels`: checks and times the kernels of decode steps one by one, the default
/// beside what a step launches, in a child process as the tuner does. A TP size for each number of
/// heads. Throws EngineError for bad input.
/// @param compiler  version of NVRTC, for the head of the report; empty where there is none
/// @return the exit status: 1 where a kernel could not be measured
int bench_kernels(const BenchOptions& options, std::shared_ptr<const cu::DriverApi> driver,
                  const KernelSource& source, const std::string& compiler, const RatePolicy& rates,
                  std::FILE* out);

}  // namespace ingot
