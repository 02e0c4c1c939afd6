#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/unique.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/handle.hpp"

namespace ingot::cu {

inline CUresult free_pinned_memory(const Handle<void*>& memory) {
  return memory.driver->cuMemFreeHost(memory.raw);
}

/// Host memory that the card copies from and to at full speed while the host goes on. Usable from
/// every context and thread; no copy may be under way when it is freed.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// The context is current. Throws EngineError(cuda); the message says how much was asked for.
  static PinnedBuffer allocate(const Context& context, std::size_t bytes);

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(memory_.get().raw), bytes_};
  }

 private:
  PinnedBuffer(Handle<void*> memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  Unique<Handle<void*>, free_pinned_memory> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace ingot::cu
