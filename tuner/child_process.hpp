#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"

namespace ingot {

/// Asks questions of a child process that holds a GPU: a kernel that faults or hangs costs the
/// child and its own answer, not the rest. The child is this or another program, executed anew (a
/// forked copy of a process that has touched the driver cannot start it), lives for as many
/// questions as it survives, and is replaced when the next one comes. The parent needs no GPU and
/// loads no driver. One thread.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> command;  ///< a program that ends in answer_questions()
    std::chrono::milliseconds patience = std::chrono::seconds(12);  ///< with one question
    /// Beyond it, for a child's first question: it starts the driver and makes its inputs.
    std::chrono::milliseconds start_patience = std::chrono::seconds(20);
    int most_lost = 10;  ///< children; then every question is refused
  };
  explicit ChildProcess(Options options) : options_(std::move(options)) {}

  /// The child's answer. Error: cuda, with how it was lost (hung, killed, its last words); io, when
  /// no child can be started or too many were lost.
  /// @param patience  with this question, also where it is a child's first; default: the options'
  [[nodiscard]] Result<std::string> ask(
      const std::string& question,
      std::optional<std::chrono::milliseconds> patience = std::nullopt);

  /// How the child of the last question was lost.
  enum class Loss {
    none,         ///< it was not
    not_started,  ///< there was none
    hung,
    ended,   ///< by itself: the question is to blame
    killed,  ///< by a signal that others send
  };
  Loss last_loss() const { return last_loss_; }

  /// Whether a child waits for the next question.
  bool is_running() const { return child_.has_value(); }

  int started() const { return started_; }
  int lost() const { return lost_; }

 private:
  Options options_;
  std::optional<Subprocess> child_;
  int started_ = 0, lost_ = 0;
  Loss last_loss_ = Loss::none;
};

/// Body of the child: answers what comes over `channel` until it closes. What `answer` throws ends
/// the child, which is right after a driver error: the message is its last words. Returns the exit
/// status.
int answer_questions(int channel, const std::function<std::string(const std::string&)>& answer);

}  // namespace ingot
