// The answers of a chat: how they are made, shown and reported.
#include <fmt/core.h>

#include <utility>

#include "runtime/base/log.hpp"
#include "src/chat/turn_report.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/child_command.hpp"
#include "src/cli/progress.hpp"
#include "src/cli/standard_output.hpp"
#include "src/text/chat_json.hpp"
#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

/// A model that calls one function after the other is stopped at some time.
constexpr int kMostToolRounds = 32;

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";

}  // namespace

Result<TurnStats> ChatLoop::generate(Turn turn, std::string question, AnswerView& view) {
  Progress::Output output = Progress::standard_error();
  output.terminal = output.terminal && !plain_;
  Progress progress(std::move(output));
  const auto on_delta = [&](const OutputDelta& delta) {
    progress.clear();
    if (options_.json || output_lost_) return;
    // What came so far is to be kept: the answer ends as if it had been stopped.
    try {
      view.show(delta);
    } catch (...) {
      output_lost_ = std::current_exception();
    }
  };
  const auto on_prefill = [&](std::int64_t done, std::int64_t all) {
    if (progress.due()) progress.show(fmt::format("reading: {} of {} tokens", done, all));
  };
  const auto should_stop = [&] {
    if (output_lost_ || interrupt_.requested() != 0) return true;
    interrupt_.take_resize();
    if (input_) {
      input_->poll_keys([&](const KeyEvent& event) {
        if (event.key != Key::fold) return false;
        progress.clear();
        view.set_fold(!view.folds());
        fold_ = view.folds();
        return true;
      });
    }
    return interrupt_.requested() != 0;
  };
  switch (turn) {
    case Turn::question:
      return session().ask(std::move(question), on_delta, should_stop, on_prefill);
    case Turn::as_it_stands:
      break;
    case Turn::again:
      return session().retry(on_delta, should_stop, on_prefill);
  }
  return session().answer(on_delta, should_stop, on_prefill);
}

std::optional<TurnStats> ChatLoop::answer_once(Turn turn, std::string question) {
  AnswerView view({terminal_out_, colour_, fold_}, write_out);
  std::string again = question;  // for a second attempt, here or by /retry
  auto stats = generate(turn, std::move(question), view);
  if (!stats && stats.error().code == ErrorCode::exhausted && release_other_sessions()) {
    log::warn("{}; the state of the other sessions was given back, and this is tried again",
              stats.error().message);
    stats = generate(turn, again, view);
  }
  now_->refused.clear();
  if (!stats) {
    if (turn == Turn::question) now_->refused = std::move(again);
    complain(stats.error());
    return std::nullopt;
  }
  now_->unsaved = true;
  if (output_lost_) std::rethrow_exception(output_lost_);
  if (!options_.json) view.end();
  last_thought_ = view.thought();
  report(*stats);
  if (session().awaits_answer()) say("Not answered: /retry answers it, /undo takes it back.");
  return *stats;
}

void ChatLoop::answer(Turn turn, std::string question) {
  auto stats = answer_once(turn, std::move(question));
  for (int round = 0; stats && stats->finish_reason == FinishReason::tool_calls; ++round) {
    if (options_.tool_command.empty()) {
      const auto calls = session().open_calls();
      if (!calls.empty()) {
        say(fmt::format("Enter the result of {} (/undo takes the question back).", calls[0].name));
      }
      return;
    }
    if (round == kMostToolRounds) {
      return fail_call({ErrorCode::exhausted,
                        fmt::format("the answer is not finished: the model has called "
                                    "functions {} times in a row{}",
                                    kMostToolRounds,
                                    interactive_ ? "; enter the result yourself to go on" : "")});
    }
    if (const auto ran = run_tool_command(); !ran) return fail_call(ran.error());
    stats = answer_once(Turn::as_it_stands, {});
  }
}

void ChatLoop::fail_call(const Error& error) {
  if (!is_in_script()) return complain(error);
  note_failure(error);
  end_script("answering a call of a function", error);
}

Result<void> ChatLoop::run_tool_command() {
  for (const ToolCall& call : session().open_calls()) {
    auto result = run_filter(options_.tool_command, tool_call_json(call) + "\n",
                             interrupt_.wake_fd(), [this] {
                               interrupt_.take_resize();
                               return interrupt_.requested() == 0;
                             });
    if (!result) return Unexpected(result.error());
    while (result->ends_with('\n'))
      result->pop_back();
    if (terminal_out_) {
      write_out(fmt::format("{}[result] {}{}\n", colour_ ? kDim : "", for_terminal(*result),
                            colour_ ? kNormal : ""));
    }
    session().add_tool_result(call, std::move(*result));
  }
  return {};
}

void ChatLoop::take_result(std::string result) {
  const auto calls = session().open_calls();
  session().add_tool_result(calls[0], std::move(result));
  now_->unsaved = true;
  if (calls.size() == 1) return answer(Turn::as_it_stands);
  say(fmt::format("Enter the result of {}.", calls[1].name));
}

void ChatLoop::report(const TurnStats& stats) {
  OpenSession& now = *now_;
  now.totals += stats;
  totals_ += stats;
  if (stats.any_token()) {
    ++now.answers;
    ++answers_;
  }

  const auto& messages = session().messages();
  const bool answered = !messages.empty() && messages.back().role == Role::assistant;
  if (options_.json && answered) write_out(answer_json(messages.back(), stats) + "\n");
  if (options_.stats) {
    write_error(turn_json(stats) + "\n");
  } else if (interactive_ && show_stats_) {
    write_out(
        fmt::format("{}[{}]{}\n", colour_ ? kDim : "", turn_line(stats), colour_ ? kNormal : ""));
  }
  const double share =
      static_cast<double>(stats.context_tokens) / static_cast<double>(stats.context_limit);
  if (share < kContextWarning) {
    now.warned = false;
  } else if (!std::exchange(now.warned, true)) {
    log::warn(
        "{} of the context's {} tokens are in use; a question that does not fit is refused, "
        "and nothing is dropped: /undo or /new make room, --context N gives more",
        stats.context_tokens, stats.context_limit);
  }
}

void ChatLoop::report_totals() const {
  if (options_.stats) write_error(totals_json(answers_, totals_) + "\n");
}

}  // namespace ingot
