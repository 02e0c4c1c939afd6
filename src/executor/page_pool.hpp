#pragma once

#include <cstddef>
#include <vector>

namespace ingot::executor {

/// Which pages of a paged pool are taken, and by how many sequences each. Knows no device.
class PagePool {
 public:
  explicit PagePool(int pages) : holders_(static_cast<std::size_t>(pages), 0) {
    free_.reserve(holders_.size());
    for (int page = pages - 1; page >= 0; --page)
      free_.push_back(page);
  }

  int size() const { return static_cast<int>(holders_.size()); }
  int free() const { return static_cast<int>(free_.size()); }

  /// A page with one holder. Needs free() > 0.
  int take() {
    const int page = free_.back();
    free_.pop_back();
    holders_[static_cast<std::size_t>(page)] = 1;
    return page;
  }
  void share(int page) { ++holders_[static_cast<std::size_t>(page)]; }
  void release(int page) {
    if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  }
  /// Whether a holder must copy it before writing.
  bool is_shared(int page) const { return holders_[static_cast<std::size_t>(page)] > 1; }

 private:
  std::vector<int> holders_;  // by page; 0 = free
  std::vector<int> free_;     // the last is taken next
};

}  // namespace ingot::executor
