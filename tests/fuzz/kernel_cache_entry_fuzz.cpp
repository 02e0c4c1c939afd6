// Any bytes as a kernel cache entry, as they are and under a right checksum: refused, or an entry
// that encodes to one with the same manifest.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/hash.hpp"
#include "runtime/jit/cache_entry.hpp"

namespace {

void try_entry(const std::string& bytes) {
  const auto entry = ingot::jit::decode_entry(bytes, "fuzz");
  if (!entry) {
    if (entry.error().message.empty()) std::abort();
    return;
  }
  const auto again = ingot::jit::decode_entry(ingot::jit::encode_entry(*entry), "fuzz");
  if (!again || again->manifest != entry->manifest || again->barred != entry->barred) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_entry(bytes);
  // The checksum keeps damage from the parser behind it; here that parser is wanted.
  const ingot::Digest digest = ingot::digest_of(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  try_entry(bytes);
  return 0;
}
