#include "src/cli/engine_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace ingot {

void print_engine_counts(const Engine& engine) {
  const auto counts = engine.counts();
  if (!counts) return;
  const auto steps = static_cast<double>(std::max<std::int64_t>(counts->steps, 1));
  fmt::print(stderr,
             "{{\"engine\": {{\"steps\": {}, \"graph_steps\": {}, \"graph_share\": {:.4f}, "
             "\"kernels_compiled\": {}}}}}\n",
             counts->steps, counts->graph_steps, static_cast<double>(counts->graph_steps) / steps,
             counts->kernels_compiled);
}

}  // namespace ingot
