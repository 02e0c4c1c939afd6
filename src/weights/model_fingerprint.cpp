#include "src/weights/model_fingerprint.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>
#include <memory>

namespace ingot {
namespace {

constexpr std::size_t kWholeCheckpointBytes = std::size_t{256} << 20;
constexpr std::size_t kSampleBytes = std::size_t{16} << 10;
/// 25 MB in all, which a network disk gives in well under a second.
constexpr std::size_t kMostSampled = 512;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  Digest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    Digest out;
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), out.bytes.begin());
    return out;
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace

Result<Digest> model_fingerprint(const Checkpoint& checkpoint) {
  Hash hash;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.json.zst"}) {
    const auto file = checkpoint.directory() / name;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) continue;
    const auto digest = digest_file(file);
    if (!digest) return Unexpected(digest.error());
    hash.add(fmt::format("{} {}\n", name, digest->hex()));
  }
  const std::span<const TensorView> tensors = checkpoint.tensors();
  std::size_t total = 0;
  for (const TensorView& tensor : tensors) {
    hash.add(fmt::format("{} {} {}\n", tensor.name, static_cast<int>(tensor.dtype),
                         fmt::join(tensor.shape, ",")));
    total += tensor.bytes.size();
  }
  const bool whole = total <= kWholeCheckpointBytes;
  const std::size_t step = whole ? 1 : 1 + tensors.size() / kMostSampled;
  for (std::size_t i = 0; i < tensors.size(); i += step) {
    const std::span<const std::byte> bytes = tensors[i].bytes;
    if (whole || bytes.size() <= 3 * kSampleBytes) {
      hash.add(bytes);
      continue;
    }
    for (const std::size_t from : {std::size_t{0}, bytes.size() / 2, bytes.size() - kSampleBytes})
      hash.add(bytes.subspan(from, kSampleBytes));
  }
  return hash.digest();
}

}  // namespace ingot
