#pragma once

#include <barrier>
#include <memory>
#include <string>
#include <vector>

#include "tuner/rank_agreement.hpp"

namespace ingot::test {

/// Ranks that are threads of this process.
class LocalRanks {
 public:
  explicit LocalRanks(int size) : barrier_(size), given_(static_cast<std::size_t>(size)) {}

  /// What thread `rank` works with. The group must outlive it.
  std::unique_ptr<RankGroup> rank(int rank) { return std::make_unique<One>(*this, rank); }

 private:
  class One : public RankGroup {
   public:
    One(LocalRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.given_.size()); }
    std::vector<std::string> gather(const std::string& mine) override {
      group_.given_[static_cast<std::size_t>(rank_)] = mine;
      group_.barrier_.arrive_and_wait();
      auto all = rank_ == 0 ? group_.given_ : std::vector<std::string>{};
      group_.barrier_.arrive_and_wait();
      return all;
    }
    std::string broadcast(const std::string& of_rank_0) override {
      if (rank_ == 0) group_.broadcast_ = of_rank_0;
      group_.barrier_.arrive_and_wait();
      std::string got = group_.broadcast_;
      group_.barrier_.arrive_and_wait();
      return got;
    }

   private:
    LocalRanks& group_;
    int rank_;
  };

  std::barrier<> barrier_;
  std::vector<std::string> given_;
  std::string broadcast_;
};

}  // namespace ingot::test
