#include "tuner/child_process.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/base/printable.hpp"

namespace ingot {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 == 0: the only line
}

}  // namespace

Result<std::string> ChildProcess::ask(const std::string& question,
                                      std::optional<std::chrono::milliseconds> given) {
  last_loss_ = Loss::not_started;
  if (lost_ >= options_.most_lost)
    return fail(ErrorCode::io, fmt::format("{} measuring processes were lost; no more", lost_));
  auto patience = given.value_or(options_.patience);
  if (!child_) {
    auto child = Subprocess::spawn(options_.command);
    if (!child) return tl::unexpected(child.error());
    child_.emplace(std::move(*child));
    ++started_;
    if (!given) patience += options_.start_patience;
  }
  std::string answer;
  FrameStatus status = FrameStatus::closed;
  if (write_frame(child_->channel(), question))
    status = read_frame(child_->channel(), answer, patience);
  last_loss_ = Loss::none;
  if (status == FrameStatus::ok) return answer;
  ++lost_;
  std::string how;
  if (status == FrameStatus::timed_out) {
    how = fmt::format("hangs: no answer for {} s", std::chrono::duration<double>(patience).count());
    last_loss_ = Loss::hung;
    child_->kill();
    (void)child_->wait();
  } else {
    const Subprocess::End end = child_->wait();
    last_loss_ = end.was_killed() ? Loss::killed : Loss::ended;
    how = end.describe();
  }
  const std::string words = last_line(child_->output_tail());
  child_.reset();
  return fail(ErrorCode::cuda, words.empty() ? how : fmt::format("{}: {}", how, words));
}

int answer_questions(int channel, const std::function<std::string(const std::string&)>& answer) {
  std::string question;
  try {
    while (read_frame(channel, question) == FrameStatus::ok)
      if (!write_frame(channel, answer(question))) return 0;
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", printable(error.what()));
    return 3;
  }
}

}  // namespace ingot
