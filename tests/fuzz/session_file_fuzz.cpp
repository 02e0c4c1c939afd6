// Any bytes as a session file: refused with a reason, or a session that is the same after it was
// written and read again. An even number of bytes is the file; an odd one what its two frames hold,
// which a file is made around, so that the parser behind checksum and compression is reached too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "src/chat/session_file.hpp"

namespace {

/// The first byte says where the conversation ends and the sequences begin.
std::string file_around(std::string_view content) {
  const auto share = static_cast<unsigned char>(content.front());
  content.remove_prefix(1);
  const std::size_t split = content.size() * share / 255;
  const std::string conversation = ingot::zstd_compress(content.substr(0, split), 1);
  const std::string sequences = ingot::zstd_compress(content.substr(split), 1);
  ingot::ByteWriter sizes;
  sizes.u64(ingot::kSessionFormat);
  sizes.u64(conversation.size());
  sizes.u64(sequences.size());
  // The mark at the beginning is that of every session.
  const std::string sample = ingot::session_bytes({});
  std::string file = sample.substr(0, sample.find('\n', sample.find('\n') + 1) + 1);
  file += sizes.take() + conversation + sequences;
  const ingot::Digest digest = ingot::digest_of(file);
  file.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string given(reinterpret_cast<const char*>(data), size);
  const auto session = ingot::parse_session(size % 2 == 1 ? file_around(given) : given);
  if (!session) {
    if (session.error().message.empty()) std::abort();
    return 0;
  }
  const auto again = ingot::parse_session(ingot::session_bytes(*session));
  if (!again || again->messages != session->messages || again->settings != session->settings ||
      again->fingerprint != session->fingerprint) {
    std::abort();
  }
  return 0;
}
