#include "tests/support/memory_weight_store.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "runtime/base/error.hpp"

namespace ingot::test {

class MemoryWeightWriter : public executor::WeightWriter {
 public:
  MemoryWeightWriter(MemoryWeightStore& store, std::size_t staging_bytes) : store_(store) {
    for (Slot& slot : slots_)
      slot.buffer.resize(staging_bytes);
    ++store_.open_writers_;
  }
  ~MemoryWeightWriter() override { --store_.open_writers_; }

  std::span<std::byte> staging() override {
    next_ = 1 - next_;
    arrive(slots_[next_]);
    return slots_[next_].buffer;
  }

  void write(std::uint64_t offset, std::size_t bytes) override {
    Slot& slot = slots_[next_];
    if (slot.bytes != 0) throw std::logic_error("a buffer is written twice");
    if (bytes == 0 || bytes > slot.buffer.size() || offset > store_.bytes_ ||
        bytes > store_.bytes_ - offset) {
      throw std::logic_error("a write outside the store or the buffer");
    }
    if (store_.writes_left_-- <= 0) throw EngineError(ErrorCode::cuda, "the card has gone");
    slot.offset = offset;
    slot.bytes = bytes;
  }

  void finish() override {
    for (Slot& slot : slots_)
      arrive(slot);
  }

 private:
  struct Slot {
    std::vector<std::byte> buffer;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;  // on their way
  };

  void arrive(Slot& slot) {
    std::memcpy(store_.data_ + slot.offset, slot.buffer.data(), slot.bytes);
    slot.bytes = 0;
  }

  MemoryWeightStore& store_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

MemoryWeightStore::MemoryWeightStore(std::uint64_t bytes)
    : memory_(bytes + 256, std::byte{0xff}), bytes_(bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  data_ = memory_.data() + (256 - address % 256) % 256;
}

std::unique_ptr<executor::WeightWriter> MemoryWeightStore::open_writer(std::size_t staging_bytes) {
  return std::make_unique<MemoryWeightWriter>(*this, staging_bytes);
}

void MemoryWeightStore::copy(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  if (std::max(from, to) + bytes > bytes_ || std::max(from, to) - std::min(from, to) < bytes)
    throw std::logic_error("a copy outside the store or onto itself");
  std::memcpy(data_ + to, data_ + from, bytes);
}

}  // namespace ingot::test
