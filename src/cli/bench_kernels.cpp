#include "src/cli/bench_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/bench/kernel_bench.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/progress.hpp"
#include "src/cli/trial_command.hpp"
#include "src/cli/version.hpp"
#include "src/cli/write_file.hpp"
#include "src/trials/tuning_plan.hpp"
#include "src/weights/tensor_table.hpp"
#include "tuner/child_bench.hpp"
#include "tuner/look_up.hpp"

namespace ingot {
namespace {

/// A TP size for each number of heads of a rank.
std::vector<int> tp_sizes(const BenchOptions& options, const ModelConfig& config) {
  std::vector<int> sizes;
  for (const int heads : options.heads) {
    if (config.num_heads % heads != 0) {
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("--heads {}: the model has {}; give a divisor of that", heads,
                                    config.num_heads));
    }
    sizes.push_back(config.num_heads / heads);
  }
  if (sizes.empty()) sizes.push_back(options.tp_size);
  for (const int size : sizes)
    value_or_throw(check_tp_size(config, size));
  return sizes;
}

bool is_wanted(const TuningRequest& request, const std::vector<std::string>& families) {
  const auto serves = [&](const std::string& family) {
    return std::any_of(families.begin(), families.end(),
                       [&](const std::string& one) { return family.starts_with(one); });
  };
  const auto of_request = request.families();
  return families.empty() || std::any_of(of_request.begin(), of_request.end(), serves);
}

class Run {
 public:
  Run(const BenchOptions& options, const KernelSource& source, const cu::Context& context,
      BenchSubject subject)
      : options_(options),
        source_(source),
        limits_(cu::limits_of(context.device())),
        subject_(std::move(subject)),
        config_json_(options.checkpoint.empty() ? options.config_json
                                                : options.checkpoint / "config.json"),
        config_(value_or_throw(read_model_config(config_json_))) {
    const auto folder = std::filesystem::absolute(config_json_).parent_path();
    subject_.model = folder.filename().string();
    subject_.layers = config_.num_layers;
    subject_.tp_size = tp_sizes(options, config_).front();
  }

  int all(std::FILE* out) {
    for (const int tp_size : tp_sizes(options_, config_)) {
      measure(tp_size);
      if (interrupt_.requested() != 0) break;
    }
    if (cells_.empty() && interrupt_.requested() == 0) {
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("--family {}: no kernel of these steps is of that family",
                                    fmt::join(options_.families, ",")));
    }
    progress_.clear();
    print_card(subject_, out);
    print_kernels(cells_, out);
    std::string lines;
    for (const KernelCell& cell : cells_)
      lines += kernel_json(subject_, cell) + "\n";
    if (!options_.json.empty()) write_file(options_.json, lines);
    if (!options_.svg.empty())
      write_file(options_.svg, roofline_svg(subject_, roofline_points(cells_)));
    if (interrupt_.requested() != 0) return interrupted_status(interrupt_.requested());
    return std::all_of(cells_.begin(), cells_.end(),
                       [](const KernelCell& cell) { return cell.running() != nullptr; })
               ? 0
               : 1;
  }

 private:
  void measure(int tp_size) {
    const auto buckets = trials::deployed_buckets(options_.batches, options_.prompt_rows,
                                                  options_.contexts, can_sample(config_));
    const auto plan = value_or_throw(trials::tuning_plan(config_, tp_size, buckets, limits_));
    std::vector<TuningRequest> requests;
    for (const TuningRequest& request : plan.requests)
      if (is_wanted(request, options_.families)) requests.push_back(request);
    if (requests.empty()) return;
    const TuningScope scope{.device = source_.device, .tp_size = tp_size, .policy = source_.policy};
    const LookUp choices = value_or_throw(
        look_up(requests, scope, *source_.kernels, *source_.records, source_.overrides));
    ChildBench bench({.worker_command = trial_worker_command({.cache = options_.cache,
                                                              .config_json = config_json_,
                                                              .tp_size = tp_size,
                                                              .devices = {0},
                                                              .jobs = options_.threads,
                                                              .buckets = buckets}),
                      .enter_timeout = std::chrono::minutes(10)});
    for (std::size_t i = 0; i < requests.size() && interrupt_.requested() == 0; ++i) {
      if (progress_.due())
        progress_.show(
            fmt::format("measuring {} of {}: {}", i + 1, requests.size(), requests[i].title()));
      cells_.push_back(measure_kernel(
          requests[i], choices.selections[i], tp_size, *source_.kernels, bench, subject_.rates,
          {.arch = source_.device.arch, .samples = 5, .all_candidates = options_.all_candidates}));
    }
  }

  const BenchOptions& options_;
  const KernelSource& source_;
  const cu::DeviceLimits limits_;
  BenchSubject subject_;
  const std::filesystem::path config_json_;
  const ModelConfig config_;
  const InterruptGuard interrupt_;
  Progress progress_{Progress::standard_error()};
  std::vector<KernelCell> cells_;
};

}  // namespace

int bench_kernels(const BenchOptions& options, std::shared_ptr<const cu::DriverApi> driver,
                  const KernelSource& source, const std::string& compiler, const RatePolicy& rates,
                  std::FILE* out) {
  const cu::Context context = cu::Context::retain(std::move(driver), 0);
  BenchSubject subject;
  subject.device = context.device().name;
  subject.arch = source.device.arch;
  subject.driver_branch = source.device.driver_branch;
  subject.compiler = compiler;
  subject.version = kVersion;
  subject.rates = measure_card_rates(context, *source.kernels, source.device.arch, rates);
  return Run(options, source, context, std::move(subject)).all(out);
}

}  // namespace ingot
