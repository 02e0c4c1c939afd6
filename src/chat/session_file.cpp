#include "src/chat/session_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/base/file_descriptor.hpp"
#include "runtime/base/why_not.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

// Line ends of both kinds and an end-of-file mark: whatever treats the file as text damages these.
constexpr std::string_view kMagic("\x89ingot session\r\n\x1a\n", 18);
constexpr std::size_t kDigestBytes = sizeof(Digest::bytes);
/// Magic, version, and the sizes of the two frames.
constexpr std::size_t kHeaderBytes = kMagic.size() + 3 * sizeof(std::uint64_t);

/// Text alone; more than any context holds.
constexpr std::size_t kMostConversationBytes = std::size_t{256} << 20;
constexpr std::size_t kMostSequenceBytes = std::size_t{16} << 30;
/// Nobody's KV is compressed by more, so that a small file cannot ask for all memory.
constexpr std::size_t kMostRatio = 1024;

/// Who leaves has to be gone some time, another writer's gigabytes are written by then.
constexpr std::chrono::seconds kLongestLock{10};
constexpr std::chrono::milliseconds kLockRound{5};

/// A list of files is there at once.
constexpr std::size_t kMostQuicklyRead = std::size_t{16} << 20;

constexpr int kCompression = 1;  // the fastest: KV hardly compresses

void put(ByteWriter& out, const ChatMessage& message) {
  out.u64(static_cast<std::uint64_t>(message.role));
  out.u64(static_cast<std::uint64_t>(message.task));
  out.u64(message.continues ? 1 : 0);
  out.text(message.content);
  out.text(message.reasoning);
  out.text(message.tool_call_id);
  out.text(message.response_format);
  out.u64(message.tool_calls.size());
  for (const ToolCall& call : message.tool_calls) {
    out.text(call.id);
    out.text(call.name);
    out.text(call.arguments);
  }
  out.u64(message.tools.size());
  for (const std::string& tool : message.tools)
    out.text(tool);
}

bool take_text(ByteReader& in, std::string& to) {
  to = in.text();
  return in.ok() && is_utf8(to);
}

template <class Enum>
bool take_enum(ByteReader& in, Enum last, Enum& to) {
  const std::uint64_t value = in.u64();
  if (!in.ok() || value > static_cast<std::uint64_t>(last)) return false;
  to = static_cast<Enum>(value);
  return true;
}

bool take(ByteReader& in, ToolCall& call) {
  return take_text(in, call.id) && take_text(in, call.name) && take_text(in, call.arguments);
}

bool take(ByteReader& in, std::string& text) {
  return take_text(in, text);
}

using Setting = std::pair<std::string, std::vector<std::string>>;
bool take(ByteReader& in, Setting& setting);
bool take(ByteReader& in, ChatMessage& message);
bool take(ByteReader& in, SavedSequence& sequence);

/// As many as a count in front says; a false count runs into the end of the bytes.
template <class T>
bool take_list(ByteReader& in, std::vector<T>& to) {
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    if (!take(in, to.emplace_back())) return false;
  }
  return in.ok();
}

bool take(ByteReader& in, Setting& setting) {
  return take_text(in, setting.first) && take_list(in, setting.second);
}

bool take(ByteReader& in, ChatMessage& message) {
  std::uint64_t continues = 0;
  if (!take_enum(in, Role::tool, message.role) || !take_enum(in, Task::read_url, message.task)) {
    return false;
  }
  continues = in.u64();
  message.continues = continues == 1;
  return continues <= 1 && take_text(in, message.content) && take_text(in, message.reasoning) &&
         take_text(in, message.tool_call_id) && take_text(in, message.response_format) &&
         take_list(in, message.tool_calls) && take_list(in, message.tools);
}

bool take(ByteReader& in, SavedSequence& sequence) {
  const std::string_view tokens = in.text();
  sequence.longest = in.u64();
  sequence.state = in.text();
  if (!in.ok() || tokens.size() % sizeof(TokenId) != 0) return false;
  assign_values(sequence.tokens, tokens);
  return std::all_of(sequence.tokens.begin(), sequence.tokens.end(),
                     [](TokenId token) { return token >= 0; });
}

std::string conversation_bytes(const SavedSession& session) {
  ByteWriter out;
  out.text(session.model);
  out.text(session.fingerprint.hex());
  out.u64(session.settings.size());
  for (const auto& [name, values] : session.settings) {
    out.text(name);
    out.u64(values.size());
    for (const std::string& value : values)
      out.text(value);
  }
  out.u64(session.messages.size());
  for (const ChatMessage& message : session.messages)
    put(out, message);
  return out.take();
}

std::string sequence_bytes(const SavedSession& session) {
  ByteWriter out;
  out.u64(session.sequences.size());
  for (const SavedSequence& sequence : session.sequences) {
    out.text({reinterpret_cast<const char*>(sequence.tokens.data()),
              sequence.tokens.size() * sizeof(TokenId)});
    out.u64(sequence.longest);
    out.text(sequence.state);
  }
  return out.take();
}

Result<Digest> digest_from(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * kDigestBytes) return fail(ErrorCode::corrupt, "a digest is no digest");
  for (std::size_t i = 0; i < kDigestBytes; ++i) {
    unsigned byte = 0;
    for (const char c : hex.substr(2 * i, 2)) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (c < 'a' || c > 'f')) return fail(ErrorCode::corrupt, "a digest is no digest");
      byte = byte * 16 + static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
    }
    digest.bytes[i] = static_cast<std::uint8_t>(byte);
  }
  return digest;
}

/// One of the two frames, unpacked.
Result<std::string> unpack(std::string_view frame, std::size_t most_bytes) {
  return zstd_decompress(frame, std::min(most_bytes, frame.size() * kMostRatio));
}

Digest trailer_of(std::string_view bytes) {
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes.data() + bytes.size() - kDigestBytes, kDigestBytes);
  return digest;
}

/// What lies where a session is to be read or written.
struct Place {
  enum class Kind { nothing, folder, no_file, foreign, session } kind = Kind::nothing;
  Digest checksum;  ///< of a session: what its file ends with
};

/// Opens nothing that could block, and reads no more than what tells. An empty file counts as a
/// session, which it may have been.
Result<Place> look_at(const std::filesystem::path& file) {
  using Kind = Place::Kind;
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Place{};
    return fail(ErrorCode::io, why_not_read(errno));
  }
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.is_open()) {
    if (errno == ENXIO) return Place{Kind::no_file, {}};  // a socket
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, why_not_read(errno));
  }
  if (::fstat(opened.get(), &info) != 0) return fail(ErrorCode::io, why_not_read(errno));
  if (S_ISDIR(info.st_mode)) return Place{Kind::folder, {}};
  if (!S_ISREG(info.st_mode)) return Place{Kind::no_file, {}};
  char start[kMagic.size()];
  const ssize_t got = ::pread(opened.get(), start, sizeof start, 0);
  if (got < 0) return fail(ErrorCode::io, why_not_read(errno));
  const std::string_view begins(start, static_cast<std::size_t>(got));
  if (!kMagic.starts_with(begins)) return Place{Kind::foreign, {}};
  Place place{Kind::session, {}};
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size >= kHeaderBytes + kDigestBytes &&
      ::pread(opened.get(), place.checksum.bytes.data(), kDigestBytes,
              static_cast<off_t>(size - kDigestBytes)) != static_cast<ssize_t>(kDigestBytes)) {
    return fail(ErrorCode::io, why_not_read(errno));
  }
  return place;
}

/// Waits for others that write there, through signals, and not for one that hangs.
void lock_for_writing(int folder) {
  const auto give_up = std::chrono::steady_clock::now() + kLongestLock;
  while (::flock(folder, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // there are no locks
    if (std::chrono::steady_clock::now() >= give_up) return;
    std::this_thread::sleep_for(kLockRound);
  }
}

Unexpected contradicts() {
  return fail(ErrorCode::corrupt, "it contradicts itself, though its checksum is right");
}

/// The bytes of the two frames.
struct Frames {
  std::uint64_t conversation = 0;
  std::uint64_t sequences = 0;
};

/// @param begin  of a file of so many bytes, its header at least
Result<Frames> frames_of(std::string_view begin, std::uint64_t file_bytes) {
  if (begin.empty()) return fail(ErrorCode::corrupt, "it is empty");
  if (!begin.starts_with(kMagic.substr(0, std::min(kMagic.size(), begin.size())))) {
    return fail(ErrorCode::corrupt, "it is no session of ingot");
  }
  ByteReader header(begin.substr(std::min(kMagic.size(), begin.size())));
  const std::uint64_t version = header.u64();
  const Frames sizes{header.u64(), header.u64()};
  if (version > kSessionFormat) {
    return fail(ErrorCode::unsupported,
                fmt::format("it is of format {}, this version of ingot reads up to {}; a newer one "
                            "wrote it",
                            version, kSessionFormat));
  }
  const std::uint64_t frames =
      file_bytes - std::min<std::uint64_t>(file_bytes, kHeaderBytes + kDigestBytes);
  if (!header.ok() || sizes.conversation > frames ||
      sizes.sequences > frames - sizes.conversation) {
    return fail(ErrorCode::corrupt, "it is cut short");
  }
  if (version == 0 || sizes.conversation + sizes.sequences != frames) return contradicts();
  return sizes;
}

/// Of a whole file.
Result<void> check_digest(std::string_view bytes) {
  const Digest digest = digest_of(bytes.substr(0, bytes.size() - kDigestBytes));
  if (digest == trailer_of(bytes)) return {};
  return fail(ErrorCode::corrupt, "its checksum is wrong: it is damaged");
}

}  // namespace

std::string session_bytes(const SavedSession& session) {
  const std::string conversation = zstd_compress(conversation_bytes(session), kCompression);
  std::string unpacked = sequence_bytes(session);
  std::string sequences = zstd_compress(unpacked, kCompression);
  if (unpacked.size() > sequences.size() * kMostRatio || unpacked.size() > kMostSequenceBytes) {
    // Not to be read again: better without.
    sequences = zstd_compress(sequence_bytes({}), kCompression);
  }
  ByteWriter sizes;
  sizes.u64(kSessionFormat);
  sizes.u64(conversation.size());
  sizes.u64(sequences.size());
  std::string out(kMagic);
  out += sizes.take();
  out += conversation;
  out += sequences;
  const Digest digest = digest_of(out);
  out.append(reinterpret_cast<const char*>(digest.bytes.data()), kDigestBytes);
  return out;
}

Result<SavedSession> parse_session(std::string_view bytes) {
  const auto frames = frames_of(bytes, bytes.size());
  if (!frames) return Unexpected(frames.error());
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestBytes);
  if (auto whole = check_digest(bytes); !whole) return Unexpected(whole.error());

  const auto conversation =
      unpack(content.substr(kHeaderBytes, frames->conversation), kMostConversationBytes);
  if (!conversation) return Unexpected(conversation.error());
  const auto sequences =
      unpack(content.substr(kHeaderBytes + frames->conversation), kMostSequenceBytes);
  if (!sequences) return Unexpected(sequences.error());

  SavedSession session;
  ByteReader in(*conversation);
  std::string fingerprint;
  if (!take_text(in, session.model) || !take_text(in, fingerprint)) return contradicts();
  const auto parsed = digest_from(fingerprint);
  if (!parsed) return Unexpected(parsed.error());
  session.fingerprint = *parsed;
  if (!take_list(in, session.settings) || !take_list(in, session.messages) || !in.done()) {
    return contradicts();
  }
  ByteReader states(*sequences);
  if (!take_list(states, session.sequences) || !states.done()) return contradicts();
  return session;
}

Result<StoredSession> read_session(const std::filesystem::path& file) {
  const auto refuse = [&](ErrorCode code, std::string_view why) {
    return fail(code, fmt::format("reading the session {}: {}", file.string(), why));
  };
  const auto place = look_at(file);
  if (!place) return refuse(place.error().code, place.error().message);
  if (place->kind == Place::Kind::folder) {
    return refuse(ErrorCode::invalid_argument, "this is a folder; name a session's file");
  }
  if (place->kind == Place::Kind::no_file) {
    return refuse(ErrorCode::invalid_argument, "this is no regular file; name a session's file");
  }
  if (place->kind == Place::Kind::foreign) {
    return refuse(ErrorCode::corrupt, "it is no session of ingot; name one that ingot saved");
  }
  const auto bytes = read_whole_file(file);
  if (!bytes) return Unexpected(bytes.error());
  auto session = parse_session(*bytes);
  if (!session) return refuse(session.error().code, session.error().message);
  return StoredSession{std::move(*session), trailer_of(*bytes)};
}

Result<void> check_session_file(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!opened.is_open() || ::fstat(opened.get(), &info) != 0) {
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, why_not_read(errno));
  }
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid_argument, "this is no regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size <= kMostQuicklyRead) {
    const auto bytes = read_whole_file(file);
    if (!bytes) return Unexpected(bytes.error());
    if (auto frames = frames_of(*bytes, bytes->size()); !frames) return Unexpected(frames.error());
    return check_digest(*bytes);
  }
  std::string begin(kHeaderBytes, '\0');
  const ssize_t got = ::pread(opened.get(), begin.data(), begin.size(), 0);
  if (got < 0) return fail(ErrorCode::io, why_not_read(errno));
  begin.resize(static_cast<std::size_t>(got));
  if (auto frames = frames_of(begin, size); !frames) return Unexpected(frames.error());
  return {};
}

Result<Digest> write_session(const std::filesystem::path& file, const SavedSession& session,
                             const MayReplace& replace) {
  const auto refuse = [&](ErrorCode code, std::string_view why) {
    return fail(code, fmt::format("writing the session {}: {}", file.string(), why));
  };
  const std::string bytes = session_bytes(session);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  // Two programs that leave at the same time look one after the other. Where the file system has no
  // locks, or one is held for too long, a moment remains between looking and writing.
  const FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.is_open()) {
    return refuse(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                  fmt::format("its folder: {}", why_not_written(errno)));
  }
  lock_for_writing(lock.get());
  const auto place = look_at(file);
  if (!place) return refuse(place.error().code, place.error().message);
  switch (place->kind) {
    case Place::Kind::nothing:
      break;
    case Place::Kind::folder:
      return refuse(ErrorCode::invalid_argument, "this is a folder; name a file");
    case Place::Kind::no_file:
    case Place::Kind::foreign:
      return refuse(ErrorCode::invalid_argument,
                    "what is there is no session of ingot, and stays; choose another name");
    case Place::Kind::session:
      if (replace.any_session || (replace.known && place->checksum == replace.known)) break;
      return refuse(ErrorCode::invalid_argument,
                    replace.known ? "it has changed since this session was read or written"
                                  : "another session is there");
  }
  if (auto written = publish_file(file, bytes, FileAccess::owner); !written) {
    return Unexpected(written.error());
  }
  return trailer_of(bytes);
}

}  // namespace ingot
