#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/executor/weight_store.hpp"

namespace ingot::test {

/// A WeightStore in host memory, filled with 0xff bytes. Writers hold back what they were given
/// until they must let it arrive, as a card may. Any misuse of the interface throws
/// std::logic_error.
class MemoryWeightStore : public executor::WeightStore {
 public:
  explicit MemoryWeightStore(std::uint64_t bytes);

  std::unique_ptr<executor::WeightWriter> open_writer(std::size_t staging_bytes) override;
  void copy(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) override;
  void finish() override {}

  std::byte* data() const { return data_; }
  /// As the base of place_weights(): addresses of the views are those of the host then.
  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(data_); }
  int open_writers() const { return open_writers_; }
  /// Every write after the first `writes` ones throws EngineError(cuda).
  void fail_after(int writes) { writes_left_ = writes; }

 private:
  friend class MemoryWeightWriter;

  std::vector<std::byte> memory_;
  std::byte* data_;  // 256-byte aligned
  std::uint64_t bytes_;
  std::atomic<int> open_writers_ = 0;
  std::atomic<int> writes_left_ = 1 << 30;
};

}  // namespace ingot::test
