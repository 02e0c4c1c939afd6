#include "src/batch/batch_job.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <utility>

#include "src/batch/batch_answer.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/chat_order.hpp"
#include "src/text/prompt_length.hpp"

namespace ingot {

BatchJob::BatchJob(Scheduler& scheduler, const Tokenizer& tokenizer, BatchOptions options)
    : scheduler_(scheduler), tokenizer_(tokenizer), options_(std::move(options)) {}

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
    if (auto read = read_ahead(input); !read) return Unexpected(read.error());
    scheduler_.step();
    if (auto written = write_finished(false); !written) return Unexpected(written.error());
    hooks.on_progress(counts_);
    if (input_ended_ && slots_.empty()) return counts_;
  }
}

Result<void> BatchJob::read_ahead(LineReader& input) {
  while (!input_ended_ && slots_.size() < options_.window &&
         static_cast<std::size_t>(scheduler_.waiting()) < options_.max_waiting) {
    // Waiting for input must not hold up answers that are on their way.
    const bool busy = scheduler_.running() + scheduler_.waiting() > 0;
    if (busy && !input.ready()) return {};
    auto line = input.next();
    if (!line) return Unexpected(line.error());
    if (!*line) {
      input_ended_ = !input.interrupted();
      return {};
    }
    if (!(*line)->too_long && is_blank((*line)->text)) {
      ++counts_.blank;
      continue;
    }
    start(std::move(**line));
  }
  return {};
}

void BatchJob::start(InputLine line) {
  Slot& slot = slots_.emplace_back();
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
  auto request = parse_batch_line(std::move(line), options_.defaults);
  const std::optional<std::string> id =
      request ? std::optional(request->custom_id) : request.error().custom_id;
  if (!id || id->empty()) return request;
  const XXH128_hash_t hash = XXH3_128bits(id->data(), id->size());
  if (!seen_.insert({hash.low64, hash.high64}).second) {
    return tl::unexpected<BatchError>(
        BatchError{number, id, "duplicate_custom_id", "an earlier line has the same custom_id"});
  }
  return request;
}

std::optional<BatchError> BatchJob::submit(BatchRequest request, Slot& slot) {
  const AnswerHead head{request.line, request.custom_id, request.model};
  const auto refuse = [&](std::string message) {
    return BatchError{head.line, head.custom_id, "invalid_request", std::move(message)};
  };
  ChatEncodingOptions encoding;
  encoding.thinking = request.thinking;
  encoding.efforts = options_.defaults.efforts;
  encoding.keep_thinking = request.keep_thinking;
  if (auto answerable = check_answerable(request.messages); !answerable) {
    return refuse(answerable.error().message);
  }
  // An answer that is continued has its thinking behind it.
  const bool continues = !request.messages.empty() && request.messages.back().continues;
  const auto prompt = render_chat(request.messages, encoding);
  if (!prompt) return refuse(prompt.error().message);
  request.messages.clear();
  if (auto fits = check_text_fits(tokenizer_, prompt->bytes(), scheduler_.max_context()); !fits) {
    return refuse(fits.error().message);
  }

  ScheduledRequest scheduled;
  scheduled.generation.name = fmt::format("line {}", request.line);
  scheduled.generation.prompt = encode_prompt(tokenizer_, *prompt);
  scheduled.generation.thinking = request.thinking != Thinking::none && !continues;
  scheduled.generation.sampling = std::move(request.sampling);
  scheduled.on_finish = [this, head, &slot](GenerationResult result) {
    if (result.finish_reason == FinishReason::cancelled) {
      slot.dropped = true;
    } else if (result.error) {
      settle(slot, {head.line, head.custom_id, "generation_failed", result.error->message});
    } else {
      slot.output =
          options_.plain_text ? text_line(result.content) : answer_line(head, result, tokenizer_);
      ++counts_.answered;
    }
  };
  const auto id = scheduler_.submit(std::move(scheduled));
  if (!id) return refuse(id.error().message);
  return std::nullopt;
}

void BatchJob::settle(Slot& slot, const BatchError& error) {
  slot.output = options_.plain_text ? "\n" : error_line(error);
  ++counts_.failed;
  hooks_->on_error(error);
}

Result<void> BatchJob::write_finished(bool all) {
  std::string lines;
  while (!slots_.empty() && (all || slots_.front().output)) {
    if (slots_.front().output) lines += *slots_.front().output;
    slots_.pop_front();
  }
  return lines.empty() ? Result<void>() : hooks_->write(lines);
}

}  // namespace ingot
