#include "src/weights/tensor_hashes.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace ingot {

std::vector<std::string> hash_tensors(
    const Checkpoint& checkpoint, int threads,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::span<const TensorView> tensors = checkpoint.tensors();
  std::uint64_t total = 0;
  for (const TensorView& tensor : tensors)
    total += tensor.bytes.size();
  std::vector<std::string> digests(tensors.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::uint64_t done = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < tensors.size(); i = next++) {
      const TensorView& tensor = tensors[i];
      checkpoint.will_need(tensor);
      const XXH128_hash_t digest = XXH3_128bits(tensor.bytes.data(), tensor.bytes.size());
      digests[i] = fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
      const std::lock_guard lock(mutex);
      done += tensor.bytes.size();
      if (progress) progress(done, total);
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i)
      workers.emplace_back(work);
    work();
  }
  return digests;
}

}  // namespace ingot
