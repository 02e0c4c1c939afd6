#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ingot {

/// A set of texts that keeps 16 bytes of hash of each, and nothing else: some 25 to 40 bytes a
/// member in all. Two texts are taken for one with a probability that no file is long enough for.
class IdSet {
 public:
  /// False where it is there already.
  bool insert(std::string_view id, std::int64_t number = 0);
  bool contains(std::string_view id, std::int64_t number = 0) const;
  std::size_t size() const { return size_; }

 private:
  struct Hash {
    std::uint64_t low = 0, high = 0;  ///< both 0: a free place
    bool operator==(const Hash&) const = default;
  };
  static Hash hash_of(std::string_view id, std::int64_t number);
  static std::size_t place_of(const std::vector<Hash>& places, const Hash& hash);
  void grow();

  std::vector<Hash> places_;  ///< a power of two of them, at most three quarters taken
  std::size_t size_ = 0;
};

}  // namespace ingot
