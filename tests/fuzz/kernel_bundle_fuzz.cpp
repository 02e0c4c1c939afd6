// Any bytes as a kernel bundle, as they are, and as the compressed content of one under a right
// checksum: refused, or entries that lie under their own names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/jit/bundle.hpp"

namespace {

void try_bundle(const std::string& bytes) {
  const auto bundle = ingot::jit::decode_bundle(bytes, "fuzz");
  if (!bundle) {
    if (bundle.error().message.empty()) std::abort();
    return;
  }
  for (const auto& file : bundle->files) {
    if (file.name.find('/') != std::string::npos) std::abort();
  }
  for (const auto& entry : bundle->kernels) {
    if (ingot::jit::CubinCache::file_name(entry.manifest).find('/') != std::string::npos) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_bundle(bytes);
  ingot::ByteWriter out;
  out.u64(2);
  out.text(ingot::zstd_compress(bytes, 1));
  std::string sealed = "ingot-bundle\n" + out.take();
  const ingot::Digest digest = ingot::digest_of(sealed);
  sealed.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  try_bundle(sealed);
  return 0;
}
