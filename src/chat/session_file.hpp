#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "src/text/chat_message.hpp"
#include "src/token.hpp"

namespace ingot {

/// A sequence of the engine, as it lies in a file.
struct SavedSequence {
  std::vector<TokenId> tokens;  ///< that it stands for; perhaps one more than it holds
  std::uint64_t longest = 0;    ///< the most tokens that it ever held: it rolls back from there
  std::string state;            ///< Engine::snapshot_bytes()

  bool operator==(const SavedSequence&) const = default;
};

/// A conversation as it lies in a file.
struct SavedSession {
  std::string model;   ///< its name, for people
  Digest fingerprint;  ///< model_fingerprint(): the sequences belong to that model alone
  /// Settings of the session that are not the defaults: the short name, and the values.
  std::vector<std::pair<std::string, std::vector<std::string>>> settings;
  std::vector<ChatMessage> messages;
  std::vector<SavedSequence> sequences;  ///< the newest first; empty: to be fed again

  bool operator==(const SavedSession&) const = default;
};

/// What a session file begins with says which version of the format it is.
inline constexpr std::uint64_t kSessionFormat = 1;

/// The bytes of a session file: a header with the format's version and the sizes, the conversation
/// and the sequences as a zstd frame each, and a checksum of all that.
std::string session_bytes(const SavedSession& session);

/// Errors: corrupt for an empty, foreign, shortened or damaged file; unsupported for one of a newer
/// format. The message starts with what is wrong and does not name the file.
[[nodiscard]] Result<SavedSession> parse_session(std::string_view bytes);

/// A session, and the checksum of its file: two files with the same one are the same.
struct StoredSession : SavedSession {
  Digest checksum;
};
/// Errors: not_found, io, invalid_argument for what is no file, and those of parse_session, with
/// the file's name.
[[nodiscard]] Result<StoredSession> read_session(const std::filesystem::path& file);

/// Whether a file looks like a session that can be read: its beginning, its sizes, and the checksum
/// of one that is not large. Errors as read_session(); the message says what is wrong and does not
/// name the file.
[[nodiscard]] Result<void> check_session_file(const std::filesystem::path& file);

/// What may lie where a session is written.
struct MayReplace {
  std::optional<Digest> known = std::nullopt;  ///< the session with this checksum
  bool any_session = false;                    ///< or any other
};

/// Writes it whole or not at all, for its owner's eyes only; returns its checksum. Nothing is lost
/// by it: what lies there and may not be replaced stays, whoever else writes at the same time.
/// Errors: io; not_found where the folder is missing; invalid_argument where something else lies
/// there (what is no session of ingot is never replaced).
[[nodiscard]] Result<Digest> write_session(const std::filesystem::path& file,
                                           const SavedSession& session,
                                           const MayReplace& replace = {});

}  // namespace ingot
