#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/byte_stream.hpp"

namespace ingot::reference {

/// The newest rows of a sequence, one row of `width` values per position, in order of position.
/// Rows are appended at the end, dropped at the end by rollback, and forgotten at the front.
template <class T>
class RowHistory {
 public:
  explicit RowHistory(int width = 0) : width_(static_cast<std::size_t>(width)) {}

  /// Position of the oldest row that is still here.
  std::int64_t first() const { return first_; }
  /// Position after the newest row.
  std::int64_t end() const { return end_; }

  const T* row(std::int64_t position) const {
    return values_.data() + static_cast<std::size_t>(position - first_) * width_;
  }
  std::span<const T> rows(std::int64_t from, std::int64_t to) const {
    return {row(from), static_cast<std::size_t>(to - from) * width_};
  }

  /// `count` new rows behind the newest one, to be filled.
  std::span<T> append(std::int64_t count) {
    end_ += count;
    const std::size_t before = values_.size();
    values_.resize(before + static_cast<std::size_t>(count) * width_);
    return std::span(values_).subspan(before);
  }

  void truncate(std::int64_t end) {
    if (end >= end_) return;
    end_ = end;
    values_.resize(static_cast<std::size_t>(end_ - first_) * width_);
  }

  /// Rows before `position` are not needed any more. They go when they are as many as the rest, so
  /// that a long decode moves each row once.
  void forget_before(std::int64_t position) {
    position = std::min(position, end_);
    const std::int64_t old = position - first_;
    if (old <= end_ - position) return;
    const auto count = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(old) * width_);
    values_.erase(values_.begin(), values_.begin() + count);
    first_ += old;
  }

  void write(ByteWriter& out) const {
    out.u64(static_cast<std::uint64_t>(first_));
    out.u64(static_cast<std::uint64_t>(end_));
    out.text({reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(T)});
  }
  /// Takes what write() wrote for rows of the same width. False, and unchanged, where it is
  /// anything else, or does not hold the rows from `needed` (or its end) to `end`.
  bool read(ByteReader& in, std::int64_t needed, std::int64_t end) {
    const auto from = static_cast<std::int64_t>(in.u64());
    const auto to = static_cast<std::int64_t>(in.u64());
    const std::string_view bytes = in.text();
    if (!in.ok() || to != end || from < 0 || from > end || (from > needed && from > 0))
      return false;
    const std::size_t row_bytes = width_ * sizeof(T);
    const auto rows = static_cast<std::size_t>(end - from);
    if (row_bytes == 0 ? !bytes.empty()
                       : bytes.size() % row_bytes != 0 || bytes.size() / row_bytes != rows) {
      return false;
    }
    first_ = from;
    end_ = to;
    assign_values(values_, bytes);
    return true;
  }

 private:
  std::size_t width_;
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
  std::vector<T> values_;
};

}  // namespace ingot::reference
