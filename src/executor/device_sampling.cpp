#include "src/executor/device_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "src/executor/device_engine_impl.hpp"

namespace ingot::executor {
namespace {

static_assert(kernels::SAMPLE_MOST_LOGPROBS >= kMaxTopLogprobs);

TokenLogprob logprob_of(const kernels::SampleLogprob& entry) {
  return {.id = entry.id, .logit = entry.logit, .logprob = entry.logprob};
}

}  // namespace

bool samples_on_device(const SamplingParams& params) {
  return !params.has_penalties() && params.logit_bias.empty();
}

kernels::SampleRow sample_row(const SampleRequest& request) {
  const SamplingParams& p = *request.params;
  return {.temperature = p.temperature,
          .top_p = p.top_p,
          .min_p = p.min_p,
          .repetition_penalty = 1,
          .presence_penalty = 0,
          .frequency_penalty = 0,
          .seed = p.seed,
          .position = request.position,
          .top_k = p.top_k,
          .bias_begin = 0,
          .bias_count = 0,
          .has_penalties = 0,
          .logprobs = p.top_logprobs.value_or(-1),
          .reserved = 0};
}

kernels::SampleRow unused_sample_row() {
  SamplingParams likeliest;
  likeliest.temperature = 0;
  return sample_row({.params = &likeliest});
}

Result<SampledToken> sampled_token(const kernels::SampleResult& result,
                                   const SamplingParams& params, int vocab_size) {
  if (result.bad_logits != 0) {
    return Unexpected(no_token_error(static_cast<std::size_t>(std::max(result.bad_logits, 0)),
                                     static_cast<std::size_t>(vocab_size)));
  }
  SampledToken token{result.token, std::nullopt, {}};
  if (!params.top_logprobs) return token;
  token.logprob = logprob_of(result.chosen);
  for (int i = 0; i < result.top_count; ++i)
    token.top.push_back(logprob_of(result.top[i]));
  return token;
}

}  // namespace ingot::executor

namespace ingot {

bool DeviceEngine::Impl::takes(const SequenceStep& step) const {
  // Of several ranks each has the logits of its share of the vocabulary.
  return step.sample && ranks.size() == 1 && can_sample(model_config) &&
         executor::samples_on_device(*step.sample->params);
}

void DeviceEngine::Impl::set_samples(std::span<const LogitRow> wanted, int rows) {
  std::fill_n(inputs.samples, rows, executor::unused_sample_row());
  for (const auto& [row, part] : wanted) {
    if (part->sample) inputs.samples[row] = executor::sample_row(*part->sample);
  }
}

void DeviceEngine::Impl::fetch_samples(EngineRank& rank, std::span<const LogitRow> wanted,
                                       int rows) {
  std::vector<kernels::SampleResult> results(static_cast<std::size_t>(rows));
  rank.memory.fetch(rank.stream, rank.memory.buffers().samples,
                    std::as_writable_bytes(std::span(results)));
  for (const auto& [row, part] : wanted) {
    if (!part->sample) continue;
    const kernels::SampleResult& result = results[static_cast<std::size_t>(row)];
    *part->sampled =
        executor::sampled_token(result, *part->sample->params, model_config.vocab_size);
    counted.nan_rows += result.bad_logits > 0 ? 1 : 0;
    ++counted.tokens_sampled;
  }
}

void DeviceEngine::Impl::count_nan_rows(std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(model_config.vocab_size);
  for (std::size_t begin = 0; begin < logits.size(); begin += vocab) {
    const auto row = logits.subspan(begin, vocab);
    counted.nan_rows += std::ranges::any_of(row, [](float v) { return std::isnan(v); }) ? 1 : 0;
  }
}

}  // namespace ingot
