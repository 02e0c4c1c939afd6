#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// Appends numbers and strings to bytes; ByteReader takes them off in the same order.
/// Little-endian, as every machine that we run on.
class ByteWriter {
 public:
  void u64(std::uint64_t value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof raw);
  }
  void text(std::string_view value) {
    u64(value.size());
    bytes_.append(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what ByteWriter wrote. Past the end, or with a length that runs past it, everything reads
/// as zero and empty, and ok() is false from then on.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  std::uint64_t u64() {
    std::uint64_t value = 0;
    if (!take(sizeof value)) return 0;
    std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  std::string_view text() {
    const std::uint64_t size = u64();
    return take(size) ? taken_ : std::string_view{};
  }
  bool ok() const { return ok_; }
  /// All bytes were read, and nothing failed.
  bool done() const { return ok_ && rest_.empty(); }

 private:
  bool take(std::uint64_t bytes) {
    if (!ok_ || bytes > rest_.size()) {
      ok_ = false;
      return false;
    }
    taken_ = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return true;
  }

  std::string_view rest_;
  std::string_view taken_;
  bool ok_ = true;
};

/// The values that bytes are, of whatever alignment; a part of one at the end is left out. Bytes of
/// nothing may be a null pointer, which memcpy does not take.
template <class T>
void assign_values(std::vector<T>& to, std::string_view bytes) {
  to.resize(bytes.size() / sizeof(T));
  if (!to.empty()) std::memcpy(to.data(), bytes.data(), to.size() * sizeof(T));
}

}  // namespace ingot
