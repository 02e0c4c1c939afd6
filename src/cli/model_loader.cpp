#include "src/cli/model_loader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/log.hpp"
#include "src/cli/device.hpp"
#include "src/reference/reference_engine.hpp"
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
    return fail(ErrorCode::not_found, fmt::format("opening the model {}: no such folder", model));
  }
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("opening the model {}: {}", model, error.message()));
  }
  if (!std::filesystem::is_directory(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("opening the model {}: this is a file; name the folder that holds "
                            "config.json and the safetensors shards",
                            model));
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_model(const Settings& settings, WithTokenizer with_tokenizer) {
  if (auto folder = check_is_folder(settings.model); !folder) return Unexpected(folder.error());
  const auto device = choose_device(settings.device);
  if (!device) return Unexpected(device.error());
  auto checkpoint = open_checkpoint(settings.model);
  if (!checkpoint) return Unexpected(checkpoint.error());

  LoadedModel model;
  const auto folder = std::filesystem::absolute(settings.model).lexically_normal();
  model.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  if (checkpoint->config().draft == DraftKind::dspark) model.efforts = EffortTable::v0731;
  if (with_tokenizer == WithTokenizer::yes) {
    auto tokenizer = Tokenizer::load(settings.model);
    if (!tokenizer) return Unexpected(tokenizer.error());
    model.tokenizer = std::move(*tokenizer);
  }
  if (settings.device == "auto") log::info("{}", device->reason);
  const ReferenceOptions options{
      .threads = static_cast<int>(settings.threads),
      .tp_size = static_cast<int>(settings.tp_size),
      .max_context = std::min(settings.context, checkpoint->config().max_position_embeddings),
  };
  try {
    model.engine = make_reference_engine(std::move(*checkpoint), options);
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
  return model;
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

Result<void> check_effort(Thinking thinking, EffortTable efforts) {
  ChatEncodingOptions encoding;
  encoding.thinking = thinking;
  encoding.efforts = efforts;
  ChatMessage message;
  message.content = "?";
  auto rendered = render_chat({&message, 1}, encoding);
  if (!rendered) return Unexpected(rendered.error());
  return {};
}

Thinking thinking_from_name(std::string_view name) {
  if (name == "low") return Thinking::low;
  if (name == "high") return Thinking::high;
  if (name == "max") return Thinking::max;
  return Thinking::none;
}

}  // namespace ingot
