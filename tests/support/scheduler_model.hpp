#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/scheduler.hpp"

namespace ingot::test {

/// A request of which it is known what it will say: `answer` tokens, of which the last ends it, by
/// its number, by its id or by its text.
struct ModelRequest {
  enum class End { length, id, text };

  std::int64_t prompt = 0, answer = 0;
  End end = End::length;
};

/// A scheduler of plain lists: what runs in a step, who gives room back, what is dropped and in
/// which order requests end, by the rules of the page. It knows lengths alone.
class SchedulerModel {
 public:
  /// @param overlaps  the next step is begun before the newest one is told
  /// @param pages     room of the engine, of `page_tokens` each
  SchedulerModel(bool overlaps, const SchedulerOptions& options, std::int64_t pages,
                 std::int64_t page_tokens);

  /// Requests have numbers, from 0.
  void submit(const ModelRequest& asked);
  void cancel(std::int64_t id);
  /// As Scheduler::step().
  bool step();

  int steps() const { return steps_; }
  int preemptions() const { return preemptions_; }
  int dropped() const { return dropped_; }  ///< tokens
  int said() const { return said_; }        ///< tokens
  /// Of the ends.
  const std::vector<std::int64_t>& order() const { return order_; }

 private:
  struct One {
    std::int64_t id = 0;
    ModelRequest asked;
    std::int64_t fed = 0, said = 0;
    std::int64_t to_feed = 0;  ///< 0: the prompt
    bool cancelled = false;
    bool told = false;  ///< its stop string was seen
    std::int64_t until() const { return to_feed > 0 ? to_feed : asked.prompt; }
  };

  std::int64_t pages_of(std::int64_t tokens) const {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }
  void count_end();
  std::vector<std::int64_t> plan() const;
  void take_away_cancelled();
  void make_room();
  void begin();
  void end();
  void tell();

  bool overlaps_;
  SchedulerOptions options_;
  std::int64_t pages_, page_tokens_;
  int places_;
  int ended_ = 0;
  std::int64_t next_ = 0;
  bool under_way_ = false;
  std::vector<One> running_, waiting_;
  std::vector<std::int64_t> counts_;  ///< of the step that is under way
  std::vector<std::int64_t> early_, ending_;
  int steps_ = 0, preemptions_ = 0, dropped_ = 0, said_ = 0;
  std::vector<std::int64_t> order_;
};

}  // namespace ingot::test
