#include "runtime/base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  static_assert(sizeof bytes.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), bytes.digest, sizeof bytes.digest);
  return digest;
}

}  // namespace

std::string Digest::hex() const {
  std::string text;
  for (const std::uint8_t byte : bytes)
    text += fmt::format("{:02x}", byte);
  return text;
}

Digest digest_of(std::string_view bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

Result<Digest> digest_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(ErrorCode::not_found, fmt::format("cannot open {}", file.string()));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> piece(kPieceBytes);
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    XXH3_128bits_update(state.get(), piece.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (!in.eof()) return fail(ErrorCode::io, fmt::format("reading {} failed", file.string()));
  return canonical(XXH3_128bits_digest(state.get()));
}

}  // namespace ingot
