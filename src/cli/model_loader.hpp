#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/cli/device.hpp"
#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"
#include "src/engine/engine.hpp"
#include "src/schedule/scheduler.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/tokenizer.hpp"
#include "tuner/overrides.hpp"

namespace ingot {

/// A model ready to run: the engine and, where text is wanted, the tokenizer beside it.
struct LoadedModel {
  std::string name;  ///< the checkpoint folder's own name
  std::unique_ptr<Engine> engine;
  std::optional<Tokenizer> tokenizer;
  EffortTable efforts = EffortTable::april;
  Device device = Device::cpu;
  Digest fingerprint;  ///< model_fingerprint(), where a command asked for it
};

enum class WithTokenizer { no, yes };

/// A model whose files are open and whose weights are not read yet: all that a command needs to
/// refuse bad input before the long wait.
struct OpenedModel {
  std::string name;
  Checkpoint checkpoint;
  std::optional<Tokenizer> tokenizer;
  EffortTable efforts = EffortTable::april;
  std::int64_t max_context = 0;
  Device device = Device::cpu;
  std::vector<int> devices = {};  ///< GPUs of the tensor parallel ranks
  Overrides overrides = {};       ///< kernels that the settings force
  std::string device_reason;      ///< which device was taken and why, where the user left that open

  const ModelConfig& config() const { return checkpoint.config(); }
};

/// Opens the checkpoint of `settings.model`; reads headers and the tokenizer, no weights.
/// Errors: those of load_model.
[[nodiscard]] Result<OpenedModel> open_model(const Settings& settings,
                                             const Environment& environment,
                                             WithTokenizer tokenizer);

/// Reads the weights. Errors: corrupt for damage found in them.
[[nodiscard]] Result<LoadedModel> load_weights(OpenedModel opened, const Settings& settings,
                                               const Environment& environment);

/// Both in one: opens the checkpoint of `settings.model` and makes the engine that `settings` ask
/// for. Says in one line on standard error which device was taken and why, where the user left that
/// open. Errors: those of open_checkpoint, Tokenizer::load and choose_device; invalid_argument
/// where no model is named, the path is a file, or the TP size does not divide the model.
[[nodiscard]] Result<LoadedModel> load_model(const Settings& settings,
                                             const Environment& environment,
                                             WithTokenizer tokenizer);

/// The scheduler's options as the settings give them.
SchedulerOptions scheduler_options(const Settings& settings);

/// Sampling defaults as the settings give them; `seed` where they leave it unset.
SamplingParams sampling_params(const Settings& settings, std::uint64_t seed);

/// Whether the sampling settings can be used at all. Error: invalid_argument.
[[nodiscard]] Result<void> check_sampling(const Settings& settings, const ModelConfig& config);

/// Which efforts a checkpoint of that shape has.
EffortTable effort_table(const ModelConfig& config);

/// "none", "low", "high" or "max", which the settings have checked.
Thinking thinking_from_name(std::string_view name);

}  // namespace ingot
