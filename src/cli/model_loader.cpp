#include "src/cli/model_loader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/log.hpp"
#include "runtime/base/why_not.hpp"
#include "src/cli/device_loader.hpp"
#include "src/cli/kernel_options.hpp"
#include "src/cli/kernel_overrides.hpp"
#include "src/plan/memory_plan.hpp"
#include "src/reference/reference_engine.hpp"
#include "src/text/control_tokens.hpp"
#include "src/weights/open_checkpoint.hpp"

namespace ingot {
namespace {

Result<void> check_is_folder(const std::string& model) {
  if (model.empty()) {
    return fail(ErrorCode::invalid_argument,
                "no model is given: name the checkpoint's folder with --model DIR");
  }
  std::error_code error;
  const auto status = std::filesystem::status(model, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return fail(ErrorCode::not_found,
                fmt::format("opening the model {}: no such folder; give the folder of a checkpoint "
                            "(--model DIR)",
                            model));
  }
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("opening the model {}: {}", model, why_not_read(error.value())));
  }
  if (!std::filesystem::is_directory(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("opening the model {}: this is a file; name the folder that holds "
                            "config.json and the safetensors shards",
                            model));
  }
  return {};
}

/// That the tokenizer's ids are those that the model was made for. Else what is read would mean
/// something else to it, and its answers would have no end.
Result<void> check_same_ids(const Tokenizer& tokenizer, const ModelConfig& config,
                            const std::string& model) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::corrupt,
                fmt::format("opening the model {}: {}; take tokenizer.json and config.json of one "
                            "checkpoint",
                            model, why));
  };
  if (tokenizer.size() > config.vocab_size) {
    return refuse(
        fmt::format("its tokenizer has ids up to {}, and the vocabulary of config.json "
                    "ends at {}",
                    tokenizer.size() - 1, config.vocab_size - 1));
  }
  const struct {
    const char* key;
    std::string_view text;
    TokenId id;
  } markers[] = {{"bos_token_id", control::kBos, config.bos_token_id},
                 {"eos_token_id", control::kEos, config.eos_token_id}};
  for (const auto& [key, text, id] : markers) {
    const auto known = tokenizer.added_token(text);
    if (!known || *known == id) continue;  // a tokenizer without it was refused when it was read
    return refuse(fmt::format("{} is {} in config.json, and {} is {} in its tokenizer", key, id,
                              text, *known));
  }
  return {};
}

}  // namespace

Result<OpenedModel> open_model(const Settings& settings, const Environment& environment,
                               WithTokenizer with_tokenizer) {
  if (auto folder = check_is_folder(settings.model); !folder) return Unexpected(folder.error());
  auto devices = device_list(settings.devices, static_cast<int>(settings.tp_size));
  if (!devices) return Unexpected(devices.error());
  const auto device = choose_device(settings.device, *devices, environment);
  if (!device) return Unexpected(device.error());
  auto overrides = read_overrides(settings.pins, settings.disabled);
  if (!overrides) return Unexpected(overrides.error());
  auto checkpoint = open_checkpoint(settings.model);
  if (!checkpoint) return Unexpected(checkpoint.error());
  const ModelConfig& config = checkpoint->config();
  if (auto divides = check_tp_size(config, static_cast<int>(settings.tp_size)); !divides) {
    return Unexpected(divides.error());
  }
  const auto folder = std::filesystem::absolute(settings.model).lexically_normal();
  std::optional<Tokenizer> tokenizer;
  if (with_tokenizer == WithTokenizer::yes) {
    auto loaded = Tokenizer::load(settings.model);
    if (!loaded) return Unexpected(loaded.error());
    if (auto same = check_same_ids(*loaded, config, settings.model); !same) {
      return Unexpected(same.error());
    }
    tokenizer = std::move(*loaded);
  }
  const std::int64_t max_context =
      std::min<std::int64_t>(settings.context, config.max_position_embeddings);
  return OpenedModel{
      .name = (folder.has_filename() ? folder : folder.parent_path()).filename().string(),
      .checkpoint = std::move(*checkpoint),
      .tokenizer = std::move(tokenizer),
      .efforts = effort_table(config),
      .max_context = max_context,
      .device = device->device,
      .devices = std::move(*devices),
      .overrides = std::move(*overrides),
      .device_reason = settings.device == "auto" ? device_notice(*device) : std::string(),
  };
}

Result<LoadedModel> load_weights(OpenedModel opened, const Settings& settings,
                                 const Environment& environment) {
  if (!opened.device_reason.empty()) log::info("{}", opened.device_reason);
  LoadedModel model;
  model.name = std::move(opened.name);
  model.tokenizer = std::move(opened.tokenizer);
  model.efforts = opened.efforts;
  model.device = opened.device;
  if (opened.device == Device::cuda) {
    auto engine = load_device_engine(
        opened.checkpoint, {.cache = kernel_cache_options(settings, environment),
                            .max_context = opened.max_context,
                            .devices = std::move(opened.devices),
                            .max_sequences = sequences_for(static_cast<int>(settings.max_batch)),
                            .max_batch = static_cast<int>(settings.max_batch),
                            .prefill_chunk = static_cast<int>(settings.prefill_chunk),
                            .tuning_budget_s = settings.tuning_budget,
                            .overrides = std::move(opened.overrides),
                            .deterministic = settings.deterministic,
                            .threads = static_cast<int>(settings.threads)});
    if (!engine) return Unexpected(engine.error());
    model.engine = std::move(*engine);
    return model;
  }
  if (!opened.overrides.empty()) {
    log::warn("the model runs on the CPU, which has no kernels: --pin and --disable have no say");
  }
  const ReferenceOptions options{
      .threads = static_cast<int>(settings.threads),
      .tp_size = static_cast<int>(settings.tp_size),
      .max_context = opened.max_context,
  };
  try {
    model.engine = make_reference_engine(std::move(opened.checkpoint), options);
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
  return model;
}

Result<LoadedModel> load_model(const Settings& settings, const Environment& environment,
                               WithTokenizer with_tokenizer) {
  auto opened = open_model(settings, environment, with_tokenizer);
  if (!opened) return Unexpected(opened.error());
  return load_weights(std::move(*opened), settings, environment);
}

SchedulerOptions scheduler_options(const Settings& settings) {
  SchedulerOptions options;
  options.max_batch = static_cast<int>(settings.max_batch);
  options.prefill_chunk = static_cast<int>(settings.prefill_chunk);
  options.prefill_tokens_per_step = options.prefill_chunk;
  return options;
}

SamplingParams sampling_params(const Settings& settings, std::uint64_t seed) {
  SamplingParams params;
  params.temperature = settings.temperature;
  params.top_p = settings.top_p;
  params.top_k = static_cast<int>(settings.top_k);
  params.min_p = settings.min_p;
  params.seed = settings.seed ? static_cast<std::uint64_t>(*settings.seed) : seed;
  params.repetition_penalty = settings.repetition_penalty;
  params.presence_penalty = settings.presence_penalty;
  params.frequency_penalty = settings.frequency_penalty;
  params.stop = settings.stop;
  params.max_tokens = settings.max_tokens;
  params.thinking_budget = settings.thinking_budget;
  return params;
}

Result<void> check_sampling(const Settings& settings, const ModelConfig& config) {
  return validate(sampling_params(settings, 0), config.vocab_size);
}

EffortTable effort_table(const ModelConfig& config) {
  return config.draft == DraftKind::dspark ? EffortTable::v0731 : EffortTable::april;
}

Thinking thinking_from_name(std::string_view name) {
  if (name == "low") return Thinking::low;
  if (name == "high") return Thinking::high;
  if (name == "max") return Thinking::max;
  return Thinking::none;
}

}  // namespace ingot
