#include "tests/support/counted_new.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> g_counting = false;  // operator new has no other way to them
std::atomic<std::int64_t> g_count = 0;
thread_local int t_uncounted = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (g_counting && t_uncounted == 0) ++g_count;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(bytes == 0 ? 1 : bytes)
                           : std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The library's own forms of arrays and without exceptions call these.
void* operator new(std::size_t bytes) {
  return allocate(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace ingot::test {

CountedNew::CountedNew() {
  g_count = 0;
  g_counting = true;
}
CountedNew::~CountedNew() {
  g_counting = false;
}
std::int64_t CountedNew::count() const {
  return g_count;
}

UncountedNew::UncountedNew() {
  ++t_uncounted;
}
UncountedNew::~UncountedNew() {
  --t_uncounted;
}

}  // namespace ingot::test
