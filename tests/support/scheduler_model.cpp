#include "tests/support/scheduler_model.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ingot::test {

SchedulerModel::SchedulerModel(bool overlaps, const SchedulerOptions& options, std::int64_t pages,
                               std::int64_t page_tokens)
    : overlaps_(overlaps),
      options_(options),
      pages_(pages),
      page_tokens_(page_tokens),
      places_(options.max_batch) {}

void SchedulerModel::submit(const ModelRequest& asked) {
  One& one = waiting_.emplace_back();
  one.id = next_++;
  one.asked = asked;
}

void SchedulerModel::cancel(std::int64_t id) {
  for (auto* list : {&running_, &waiting_}) {
    for (One& one : *list)
      one.cancelled |= one.id == id;
  }
}

bool SchedulerModel::step() {
  if (!under_way_) begin();
  if (under_way_) {
    end();
    if (overlaps_) begin();
  }
  tell();
  return under_way_ || !running_.empty() || !waiting_.empty();
}

void SchedulerModel::count_end() {
  if (places_ < options_.max_batch && ++ended_ >= places_) {
    ++places_;
    ended_ = 0;
  }
}

std::vector<std::int64_t> SchedulerModel::plan() const {
  std::vector<std::int64_t> counts;
  std::int64_t prefill = 0;
  for (const One& one : running_) {
    std::int64_t count = 1;
    if (one.fed < one.until()) {
      const std::int64_t chunk = options_.prefill_chunk;
      count = std::min(one.until(), (one.fed / chunk + 1) * chunk) - one.fed;
      if (prefill > 0 && prefill + count > options_.prefill_tokens_per_step) {
        count = 0;
      } else {
        prefill += count;
      }
    }
    counts.push_back(count);
  }
  return counts;
}

void SchedulerModel::take_away_cancelled() {
  for (auto* list : {&running_, &waiting_}) {
    for (const One& one : *list) {
      if (!one.cancelled) continue;
      count_end();
      early_.push_back(one.id);
    }
    std::erase_if(*list, [](const One& one) { return one.cancelled; });
  }
}

void SchedulerModel::make_room() {
  while (true) {
    counts_ = plan();
    std::int64_t needed = 0;
    for (std::size_t i = 0; i < running_.size(); ++i)
      needed += pages_of(running_[i].fed + counts_[i]);
    if (needed <= pages_) return;
    ++preemptions_;
    auto newest = std::max_element(running_.begin(), running_.end(),
                                   [](const auto& a, const auto& b) { return a.id < b.id; });
    One victim = *newest;
    running_.erase(newest);
    victim.to_feed = victim.said > 0 ? victim.asked.prompt + victim.said : 0;
    victim.fed = 0;
    waiting_.insert(waiting_.begin(), victim);
    places_ = std::max(1, static_cast<int>(running_.size()));
    ended_ = 0;
  }
}

void SchedulerModel::begin() {
  take_away_cancelled();
  while (!waiting_.empty() && std::ssize(running_) < places_) {
    running_.push_back(waiting_.front());
    waiting_.erase(waiting_.begin());
  }
  if (running_.empty()) return;
  make_room();
  ++steps_;
  under_way_ = true;
}

void SchedulerModel::end() {
  under_way_ = false;
  std::vector<One> ahead, behind;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    One& one = running_[i];
    one.fed += counts_[i];
    const bool more = one.fed < one.until();
    bool ends = one.told;
    if (counts_[i] > 0 && !more) {
      if (one.told || one.cancelled) {
        ++dropped_;
      } else {
        ++said_;
        ++one.said;
        one.to_feed = 0;
        // The text of the first token is told at once.
        const bool last = one.said == one.asked.answer;
        ends = last && (one.asked.end != ModelRequest::End::text || one.said == 1);
        if (last) ending_.push_back(one.id);
      }
    }
    if (ends) {
      count_end();
    } else {
      (more && counts_[i] > 0 ? behind : ahead).push_back(one);
    }
  }
  running_ = std::move(ahead);
  running_.insert(running_.end(), behind.begin(), behind.end());
}

void SchedulerModel::tell() {
  order_.insert(order_.end(), early_.begin(), early_.end());
  early_.clear();
  for (const std::int64_t id : ending_) {
    order_.push_back(id);
    for (One& one : running_)
      one.told |= one.id == id;
    const auto is_it = [&](const One& one) { return one.id == id; };
    if (std::erase_if(waiting_, is_it) > 0) count_end();
    if (!under_way_ && std::erase_if(running_, is_it) > 0) count_end();
  }
  ending_.clear();
}

}  // namespace ingot::test
