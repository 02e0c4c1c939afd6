#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// The candidates of one kernel family on one problem and one card: a product of axes, less what
/// the named rules reject. Knows no family. `Params` is a family's parameter struct: copyable and
/// comparable. The base it is made from is the default: safe and legal on every card.
template <class Params>
class Space {
 public:
  explicit Space(Params base) : base_(std::move(base)) {}

  /// Tries every value of `values` for one parameter; the base's own value counts as one of them.
  template <class T>
  Space& axis(T Params::*member, std::initializer_list<T> values) {
    std::vector<T> all(values);
    if (std::find(all.begin(), all.end(), base_.*member) == all.end()) {
      all.push_back(base_.*member);
    }
    std::sort(all.begin(), all.end());
    Axis axis;
    for (const T value : all) {
      axis.set.push_back([member, value](Params& params) { params.*member = value; });
      axis.has.push_back([member, value](const Params& params) { return params.*member == value; });
    }
    axes_.push_back(std::move(axis));
    return *this;
  }

  /// Keeps only candidates of which `rule` is true. `name` says it as a sentence: "shared memory
  /// fits"; the rejected are counted under it.
  Space& keep_if(std::string name, std::function<bool(const Params&)> rule) {
    rules_.push_back({std::move(name), std::move(rule)});
    return *this;
  }

  const Params& default_candidate() const { return base_; }

  /// The name of the first rule that rejects `params`; nullopt when it is legal.
  std::optional<std::string_view> rejection(const Params& params) const {
    for (const Rule& rule : rules_) {
      if (!rule.accepts(params)) return rule.name;
    }
    return std::nullopt;
  }

  /// Every legal candidate: the default first, then by the axes' order, the last axis fastest.
  std::vector<Params> candidates() const {
    std::vector<Params> legal;
    if (!rejection(base_)) legal.push_back(base_);
    for_each_point([&](const Params& params) {
      if (!(params == base_) && !rejection(params)) legal.push_back(params);
    });
    return legal;
  }

  /// How many points of the product each rule rejected, by its name.
  std::map<std::string, int> rejections() const {
    std::map<std::string, int> counts;
    for_each_point([&](const Params& params) {
      if (const auto name = rejection(params)) ++counts[std::string(*name)];
    });
    return counts;
  }

  /// The default, then for each axis a legal candidate at its least and at its greatest value that
  /// can be reached, changing as few other parameters as possible. Without repetitions.
  std::vector<Params> extremes() const {
    const std::vector<Params> legal = candidates();
    std::vector<Params> chosen;
    const auto choose = [&](const Params& params) {
      if (std::find(chosen.begin(), chosen.end(), params) == chosen.end()) chosen.push_back(params);
    };
    if (!rejection(base_)) choose(base_);
    for (const Axis& axis : axes_) {
      const auto nearest_at = [&](std::size_t value) {
        const Params* nearest = nullptr;
        int fewest = 0;
        for (const Params& params : legal) {
          if (!axis.has[value](params)) continue;
          const int changed = changed_axes(params);
          if (nearest == nullptr || changed < fewest) {
            nearest = &params;
            fewest = changed;
          }
        }
        if (nearest != nullptr) choose(*nearest);
        return nearest != nullptr;
      };
      for (std::size_t value = 0; value < axis.has.size() && !nearest_at(value);)
        ++value;
      for (std::size_t value = axis.has.size(); value > 0 && !nearest_at(value - 1);)
        --value;
    }
    return chosen;
  }

 private:
  struct Axis {
    std::vector<std::function<void(Params&)>> set;
    std::vector<std::function<bool(const Params&)>> has;
  };
  struct Rule {
    std::string name;
    std::function<bool(const Params&)> accepts;
  };

  int changed_axes(const Params& params) const {
    int changed = 0;
    for (const Axis& axis : axes_) {
      for (const auto& has : axis.has) {
        if (has(params) != has(base_)) {
          ++changed;
          break;
        }
      }
    }
    return changed;
  }

  template <class Visit>
  void for_each_point(const Visit& visit) const {
    std::vector<std::size_t> index(axes_.size(), 0);
    while (true) {
      Params params = base_;
      for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
        axes_[axis].set[index[axis]](params);
      }
      visit(params);
      std::size_t axis = axes_.size();
      while (axis > 0 && ++index[axis - 1] == axes_[axis - 1].set.size())
        index[--axis] = 0;
      if (axis == 0) return;
    }
  }

  Params base_;
  std::vector<Axis> axes_;
  std::vector<Rule> rules_;
};

}  // namespace ingot
