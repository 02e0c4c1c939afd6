#include "src/cli/trial_command.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/shared_library.hpp"
#include "runtime/base/subprocess.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/jit/arch.hpp"
#include "src/trials/link_trials.hpp"
#include "src/trials/step_trials.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tuner/trial_worker.hpp"

namespace ingot {
namespace {

/// "1:1:1:1:4096:1"
std::string bucket_text(const StepBucket& bucket) {
  return fmt::format("{}:{}:{}:{}:{}:{}", bucket.rows, bucket.sequences, bucket.sequence_rows,
                     bucket.logit_rows, bucket.context, bucket.sampled ? 1 : 0);
}

bool read_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool read_bucket(std::string_view text, StepBucket& bucket) {
  std::int64_t numbers[6] = {};
  for (std::int64_t& number : numbers) {
    if (!read_number(text.substr(0, text.find(':')), number)) return false;
    text.remove_prefix(std::min(text.find(':'), text.size() - 1) + 1);
  }
  bucket = {.rows = static_cast<int>(numbers[0]),
            .sequences = static_cast<int>(numbers[1]),
            .sequence_rows = static_cast<int>(numbers[2]),
            .logit_rows = static_cast<int>(numbers[3]),
            .context = numbers[4],
            .sampled = numbers[5] != 0};
  return text.empty();
}

/// Trials of one rank in its step, and of all ranks at once where all their cards are there.
class RankTrials final : public TrialRunner {
 public:
  RankTrials(const TrialWorkerOptions& options, std::shared_ptr<const cu::DriverApi> driver)
      : options_(options),
        driver_(std::move(driver)),
        config_(value_or_throw(read_model_config(options.config_json))),
        store_(value_or_throw(open_kernel_store(options.cache, options.jobs))),
        arch_(arch_of(cu::Context::retain(driver_, options.devices.front()))),
        step_(cu::Context::retain(driver_, options.devices.front()), store_,
              {.config = config_, .tp_size = options.tp_size, .buckets = options.buckets}, arch_,
              options.jobs) {}

  Result<std::vector<std::string>> enter(const std::vector<std::string>& families,
                                         const std::vector<ProblemField>& problem) override {
    entered_ = &step_;
    if (!trials::is_collective(families.front()) ||
        static_cast<int>(options_.devices.size()) != options_.tp_size)
      return step_.enter(families, problem);
    if (!links_) {
      std::vector<cu::Context> contexts;
      for (const int device : options_.devices)
        contexts.push_back(cu::Context::retain(driver_, device));
      try {
        links_.emplace(std::move(contexts), store_, config_, arch_);
      } catch (const EngineError& error) {
        if (error.error().code != ErrorCode::unsupported) throw;
        return Unexpected(error.error());
      }
    }
    entered_ = &*links_;
    return links_->enter(families, problem);
  }
  Result<std::vector<KernelOutput>> run(const TrialKernel& kernel, std::size_t edge_case,
                                        Poison poison) override {
    return entered_->run(kernel, edge_case, poison);
  }
  Result<double> time_us(const TrialKernel& kernel) override { return entered_->time_us(kernel); }

 private:
  static std::string arch_of(const cu::Context& context) {
    return value_or_throw(
        jit::arch_of(context.device().compute_major, context.device().compute_minor));
  }

  const TrialWorkerOptions& options_;
  const std::shared_ptr<const cu::DriverApi> driver_;
  const ModelConfig config_;
  const std::shared_ptr<jit::KernelStore> store_;
  const std::string arch_;
  trials::StepTrials step_;
  std::optional<trials::LinkTrials> links_;
  TrialRunner* entered_ = &step_;
};

}  // namespace

std::vector<std::string> trial_worker_command(const TrialWorkerOptions& options) {
  std::vector<std::string> command{"/proc/self/exe", kTrialWorkerCommand};
  const auto add = [&](std::string_view name, std::string_view value) {
    command.push_back(fmt::format("{}={}", name, value));
  };
  add("config", options.config_json.string());
  add("tp", std::to_string(options.tp_size));
  for (const int device : options.devices)
    add("device", std::to_string(device));
  add("jobs", std::to_string(options.jobs));
  for (const auto& folder : options.cache.cache_dirs)
    add("cache", folder.string());
  for (const auto& folder : options.cache.library_dirs)
    add("library", folder.string());
  if (!options.cache.template_dir.empty()) add("templates", options.cache.template_dir.string());
  for (const StepBucket& bucket : options.buckets)
    add("bucket", bucket_text(bucket));
  return command;
}

Result<TrialWorkerOptions> parse_trial_worker(const std::vector<std::string>& arguments) {
  TrialWorkerOptions options;
  options.devices.clear();
  for (const std::string& argument : arguments) {
    const std::string_view text = argument;
    const std::string_view name = text.substr(0, text.find('='));
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    std::int64_t number = 0;
    StepBucket bucket;
    if (name == "config") {
      options.config_json = value;
    } else if (name == "cache") {
      options.cache.cache_dirs.emplace_back(value);
    } else if (name == "library") {
      options.cache.library_dirs.emplace_back(value);
    } else if (name == "templates") {
      options.cache.template_dir = value;
    } else if (name == "tp" && read_number(value, number)) {
      options.tp_size = static_cast<int>(number);
    } else if (name == "device" && read_number(value, number)) {
      options.devices.push_back(static_cast<int>(number));
    } else if (name == "jobs" && read_number(value, number)) {
      options.jobs = static_cast<int>(number);
    } else if (name == "bucket" && read_bucket(value, bucket)) {
      options.buckets.push_back(bucket);
    } else {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("a trial worker does not know \"{}\"", argument));
    }
  }
  if (options.devices.empty())
    return fail(ErrorCode::invalid_argument, "a trial worker needs a device");
  return options;
}

namespace {

/// Ends this process when its channel is closed, whatever it is in the middle of: who asked for it
/// is gone, however that ended, and a trial holds much of the card's memory.
void end_with_channel() {
  std::thread([] {
    pollfd channel{.fd = Subprocess::kChildChannel, .events = 0, .revents = 0};  // a hang-up counts
    while (::poll(&channel, 1, -1) < 0 && errno == EINTR) {
    }
    ::_exit(1);
  }).detach();
}

}  // namespace

int run_trial_worker(const std::vector<std::string>& arguments) {
  // A terminal's Ctrl-C reaches this process too. It is for the other one, which ends the tuning
  // after the trial in work and closes the channel.
  (void)std::signal(SIGINT, SIG_IGN);
  end_with_channel();
  const TrialWorkerOptions options = value_or_throw(parse_trial_worker(arguments));
  auto driver =
      value_or_throw(cu::DriverApi::open(library_search_path(options.cache.library_dirs)));
  RankTrials trials(options, std::move(driver));
  return serve_trials(Subprocess::kChildChannel, trials);
}

}  // namespace ingot
