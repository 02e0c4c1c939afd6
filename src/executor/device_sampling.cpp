#include "src/executor/device_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "src/executor/device_engine_impl.hpp"

namespace ingot::executor {
namespace {

static_assert(kernels::SAMPLE_MOST_LOGPROBS >= kMaxTopLogprobs);

/// The kernel looks for earlier entries of the same token: their number counts in the square.
constexpr std::size_t kMostRowBiases = 512;
// SampleTokensArgs::counts: bit 15, in the prompt; the others, how often generated.
constexpr kernels::u16 kInPrompt = 0x8000;
constexpr int kMostCounted = 0x7fff;

TokenLogprob logprob_of(const kernels::SampleLogprob& entry) {
  return {.id = entry.id, .logit = entry.logit, .logprob = entry.logprob};
}

}  // namespace

void SampleAdjustments::clear() {
  used_ = 0;
  bias_ids_.clear();
  bias_values_.clear();
}

bool SampleAdjustments::add(int index, const SampleRequest& request, int vocab_size,
                            kernels::SampleRow& row) {
  const SamplingParams& p = *request.params;
  if (!p.has_penalties() && p.logit_bias.empty()) return true;
  if (index >= StepInputs::kMostAdjustedRows || p.logit_bias.size() > kMostRowBiases ||
      bias_ids_.size() + p.logit_bias.size() > StepInputs::kMostBiases)
    return false;
  if (p.has_penalties()) {
    if (used_ == counts_.size()) counts_.emplace_back();
    Counts& counts = counts_[used_];
    counts.row = index;
    counts.values.assign(static_cast<std::size_t>(vocab_size), 0);
    for (const auto& [id, times] : request.history->generated) {
      if (times > kMostCounted) return false;
      counts.values[static_cast<std::size_t>(id)] = static_cast<kernels::u16>(times);
    }
    for (const TokenId id : request.history->prompt)
      counts.values[static_cast<std::size_t>(id)] |= kInPrompt;
    ++used_;
    row.has_penalties = 1;
    row.repetition_penalty = p.repetition_penalty;
    row.presence_penalty = p.presence_penalty;
    row.frequency_penalty = p.frequency_penalty;
  }
  row.bias_begin = static_cast<int>(bias_ids_.size());
  row.bias_count = static_cast<int>(p.logit_bias.size());
  for (const auto& [id, bias] : p.logit_bias) {
    bias_ids_.push_back(id);
    bias_values_.push_back(bias);
  }
  return true;
}

void SampleAdjustments::upload(const StepMemory& memory, const cu::Stream& stream,
                               int vocab_size) const {
  const StepBuffers& b = memory.buffers();
  for (const Counts& counts : std::span(counts_).first(used_)) {
    memory.put(stream, b.sample_counts + static_cast<std::ptrdiff_t>(counts.row) * vocab_size,
               std::as_bytes(std::span(counts.values)));
  }
  if (bias_ids_.empty()) return;
  memory.put(stream, b.bias_ids, std::as_bytes(std::span(bias_ids_)));
  memory.put(stream, b.bias_values, std::as_bytes(std::span(bias_values_)));
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
  return step.sample && can_sample(model_config);
}

void DeviceEngine::Impl::set_samples(QueuedPass& pass, int rows) {
  pass.sample_rows = rows;
  pass.adjustments.clear();
  kernels::SampleRow* const samples = pass.inputs().sample_rows(rows);
  std::fill_n(samples, rows, executor::unused_sample_row());
  for (const auto& [index, part] : pass.wanted) {
    if (!part->sample) continue;
    kernels::SampleRow row = executor::sample_row(*part->sample);
    if (pass.adjustments.add(index, *part->sample, model_config.vocab_size, row)) {
      samples[index] = row;
      continue;
    }
    part->sample.reset();
    part->result->rows = 1;
    part->result->values.resize(static_cast<std::size_t>(model_config.vocab_size));
    part->logits = part->result->values.data();
  }
}

void DeviceEngine::Impl::take_samples(QueuedPass& pass) {
  for (const auto& [row, part] : pass.wanted) {
    if (!part->sample) continue;
    const kernels::SampleResult& result = pass.samples()[static_cast<std::size_t>(row)];
    part->result->sampled =
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
