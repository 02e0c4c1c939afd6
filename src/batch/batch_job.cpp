#include "src/batch/batch_job.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "src/text/chat_encoding.hpp"
#include "src/text/chat_order.hpp"
#include "src/text/control_tokens.hpp"
#include "src/text/prompt_length.hpp"

namespace ingot {

BatchJob::BatchJob(Scheduler& scheduler, const Tokenizer& tokenizer, BatchOptions options)
    : scheduler_(scheduler),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      begin_(tokenizer.added_token(control::kBos)),
      seen_(options_.done.take_ids()) {}

Result<BatchCounts> BatchJob::run(LineReader& input, const Hooks& hooks) {
  hooks_ = &hooks;
  while (true) {
    if (hooks.should_stop()) {
      counts_.interrupted = true;
      scheduler_.cancel_all();
      scheduler_.step();  // nothing runs any more: it only hands the cancelled requests back
      if (auto written = write_finished(true); !written) return Unexpected(written.error());
      return counts_;
    }
    if (!counts_.interrupted && hooks.should_finish()) {
      counts_.interrupted = true;
      scheduler_.cancel_waiting();
    }
    if (!counts_.interrupted) {
      if (auto read = read_ahead(input); !read) return Unexpected(read.error());
    }
    scheduler_.step();
    if (auto written = write_finished(false); !written) return Unexpected(written.error());
    hooks.on_progress(counts_);
    if ((input_ended_ || counts_.interrupted) && slots_.empty()) return counts_;
  }
}

Result<void> BatchJob::read_ahead(LineReader& input) {
  while (!input_ended_ && static_cast<std::size_t>(scheduler_.waiting()) < options_.max_waiting &&
         (options_.order == OutputOrder::finish || slots_.size() < options_.window)) {
    // Waiting for input must not hold up answers that are on their way.
    const bool busy = scheduler_.running() + scheduler_.waiting() > 0;
    if (busy && !input.ready()) return {};
    auto line = input.next();
    if (!line) return Unexpected(line.error());
    if (!*line) {
      input_ended_ = !input.interrupted();
      return {};
    }
    counts_.input_bytes += static_cast<std::int64_t>((*line)->text.size()) + 1;
    if (!options_.shard.has((*line)->number)) continue;
    if (!(*line)->too_long && is_blank((*line)->text)) {
      ++counts_.blank;
      if (!aligns()) continue;
      Slot& slot = slots_.emplace_back();
      slot.head.line = (*line)->number;
      slot.output.emplace(1, '\n');
      if (slots_.size() >= options_.window) return {};
      continue;
    }
    start(std::move(**line));
    // Lines that fail take no place in the batch: what they leave is written before it grows.
    if (slots_.size() >= options_.window) return {};
  }
  return {};
}

bool BatchJob::pass_over(std::int64_t line) {
  if (line > options_.done.last() || !options_.done.has(line)) return false;
  ++counts_.done_before;
  counts_.failed_before += options_.done.failed(line) ? 1 : 0;
  return true;
}

bool BatchJob::is_repeated(std::int64_t line, const std::string& custom_id) {
  if (line <= options_.done.last()) return options_.done.repeated(line);
  return !seen_.insert(custom_id);
}

// A line of output is known by its place alone.
bool BatchJob::aligns() const {
  return options_.plain_text && options_.order == OutputOrder::input;
}

void BatchJob::start(InputLine line) {
  if (pass_over(line.number)) return;
  Slot& slot = slots_.emplace_back();
  slot.head.line = line.number;
  auto request = understand(std::move(line));
  if (!request) {
    settle(slot, request.error());
    return;
  }
  if (const auto error = submit(std::move(*request), slot)) settle(slot, *error);
}

BatchResult<BatchRequest> BatchJob::understand(InputLine line) {
  if (options_.format == BatchFormat::text) {
    return parse_text_line(std::move(line), options_.defaults);
  }
  const std::int64_t number = line.number;
  auto request =
      options_.line_template != nullptr
          ? parse_template_line(std::move(line), options_.defaults, *options_.line_template)
          : parse_batch_line(std::move(line), options_.defaults);
  const std::optional<std::string> id =
      request ? std::optional(request->custom_id) : request.error().custom_id;
  if (!id || id->empty() || !is_repeated(number, *id)) return request;
  return tl::unexpected<BatchError>(
      BatchError{number, id, std::string(kDuplicateId), "an earlier line has the same custom_id"});
}

// Gives up the request's texts.
Result<std::vector<TokenId>> BatchJob::prompt_of(BatchRequest& request) const {
  if (request.endpoint == BatchEndpoint::completions) {
    if (!request.prompt_tokens.empty()) return std::exchange(request.prompt_tokens, {});
    const std::string text = std::exchange(request.prompt, {});
    if (auto fits = check_text_fits(tokenizer_, text.size(), scheduler_.max_context()); !fits) {
      return Unexpected(fits.error());
    }
    std::vector<TokenId> tokens;
    if (begin_) tokens.push_back(*begin_);
    tokenizer_.encode(text, AddedTokens::as_text, tokens);
    return tokens;
  }
  ChatEncodingOptions encoding;
  encoding.thinking = request.thinking;
  encoding.efforts = options_.defaults.efforts;
  encoding.keep_thinking = request.keep_thinking;
  if (auto answerable = check_answerable(request.messages); !answerable) {
    return Unexpected(answerable.error());
  }
  // Before rendering, which takes the memory of several copies.
  if (auto fits =
          check_text_fits(tokenizer_, given_bytes(request.messages), scheduler_.max_context());
      !fits) {
    return Unexpected(fits.error());
  }
  const auto prompt = render_chat(request.messages, encoding);
  if (!prompt) return Unexpected(prompt.error());
  request.messages.clear();
  if (auto fits = check_text_fits(tokenizer_, prompt->bytes(), scheduler_.max_context()); !fits) {
    return Unexpected(fits.error());
  }
  return encode_prompt(tokenizer_, *prompt);
}

std::optional<BatchError> BatchJob::submit(BatchRequest request, Slot& slot) {
  slot.head = {request.line, request.custom_id, request.model, request.endpoint};
  slot.wanted = request.choices;
  // An answer that is continued has its thinking behind it.
  const bool continues = !request.messages.empty() && request.messages.back().continues;
  const auto refuse = [&](const Error& error) {
    return BatchError{slot.head.line, slot.head.custom_id, "invalid_request", error.message};
  };
  auto prompt = prompt_of(request);
  if (!prompt) return refuse(prompt.error());

  const auto choices = static_cast<std::size_t>(request.choices);
  slot.choices.resize(choices);
  for (std::size_t i = 0; i < choices; ++i) {
    ScheduledRequest scheduled;
    GenerationRequest& generation = scheduled.generation;
    generation.name = fmt::format("line {}", request.line);
    generation.plain = request.endpoint == BatchEndpoint::completions;
    generation.thinking = request.thinking != Thinking::none && !continues;
    const bool last = i + 1 == choices;
    generation.prompt = last ? std::move(*prompt) : *prompt;
    generation.sampling = last ? std::move(request.sampling) : request.sampling;
    generation.sampling.seed += i;
    scheduled.on_finish = [this, &slot, i](GenerationResult result) {
      finish(slot, i, std::move(result));
    };
    const auto id = scheduler_.submit(std::move(scheduled));
    // What is wrong with one is wrong with the first.
    if (!id) return refuse(id.error());
    ++slot.missing;
  }
  return std::nullopt;
}

void BatchJob::finish(Slot& slot, std::size_t choice, GenerationResult result) {
  slot.dropped |= result.finish_reason == FinishReason::cancelled;
  slot.choices[choice] = std::move(result);
  if (--slot.missing > 0 || slot.dropped) return;
  const auto failed =
      std::find_if(slot.choices.begin(), slot.choices.end(),
                   [](const GenerationResult& each) { return each.error.has_value(); });
  if (failed != slot.choices.end()) {
    settle(slot,
           {slot.head.line, slot.head.custom_id, "generation_failed", failed->error->message});
    return;
  }
  if (options_.plain_text) {
    std::string text;
    for (const GenerationResult& each : slot.choices)
      text += text_line(each.content);
    slot.output = std::move(text);
  } else {
    slot.output = answer_line(slot.head, slot.choices, tokenizer_);
  }
  slot.choices.clear();
  ++counts_.answered;
}

void BatchJob::settle(Slot& slot, const BatchError& error) {
  slot.output = options_.plain_text ? std::string(static_cast<std::size_t>(slot.wanted), '\n')
                                    : error_line(error);
  slot.choices.clear();
  ++counts_.failed;
  hooks_->on_error(error);
}

Result<void> BatchJob::write_finished(bool all) {
  std::string lines;
  std::vector<std::pair<std::int64_t, std::size_t>> written;
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const bool over = slot->output || (slot->dropped && slot->missing == 0);
    if (!over && !all) {
      if (options_.order == OutputOrder::input) break;
      ++slot;
      continue;
    }
    cut_ |= aligns() && !slot->output;
    if (slot->output && !cut_) {
      lines += *slot->output;
      written.emplace_back(slot->head.line, slot->output->size());
    }
    slot = slots_.erase(slot);
  }
  if (lines.empty()) return {};
  if (auto done = hooks_->write(lines); !done) return done;
  for (const auto& [line, bytes] : written)
    hooks_->on_written(line, bytes);
  return {};
}

}  // namespace ingot
