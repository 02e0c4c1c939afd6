#include "src/chat/session_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>

#include "runtime/base/file_descriptor.hpp"
#include "src/chat/session_store.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

SavedSession made() {
  SavedSession session;
  session.model = "ein Modell";
  session.fingerprint = digest_of("weights");
  session.settings = {{"temperature", {"0.5"}}, {"stop", {"a", "b\n"}}};
  ChatMessage system;
  system.role = Role::system;
  system.content = "be brief";
  system.tools = {R"({"name": "f"})"};
  ChatMessage question;
  question.content = "what\nis \xE4\xB8\xAD?";
  ChatMessage answer;
  answer.role = Role::assistant;
  answer.reasoning = "hm";
  answer.tool_calls = {{"call_1", "f", "{}"}};
  ChatMessage result;
  result.role = Role::tool;
  result.tool_call_id = "call_1";
  session.messages = {system, question, answer, result};
  session.sequences = {{{1, 2, 3}, 5, std::string("state\0of it", 11)}, {{1}, 1, ""}};
  return session;
}

}  // namespace

TEST_CASE("a session comes back from its bytes as it was", "[cpu][chat]") {
  const SavedSession session = made();
  CHECK(value_or_throw(parse_session(session_bytes(session))) == session);
  CHECK(value_or_throw(parse_session(session_bytes({}))) == SavedSession{});
}

TEST_CASE("a session that is cut or damaged anywhere is refused", "[cpu][chat]") {
  const std::string bytes = session_bytes(made());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = parse_session(bytes.substr(0, size));
    CAPTURE(size);
    REQUIRE(!cut);
    REQUIRE(cut.error().message.find(size == 0 ? "empty" : "cut short") != std::string::npos);
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CAPTURE(at);
    REQUIRE(!parse_session(damaged));
  }
  CHECK(!parse_session(bytes + "x"));
}

TEST_CASE("a foreign file and one of a newer format are named as such", "[cpu][chat]") {
  const auto foreign = parse_session("{\"role\": \"user\"}");
  REQUIRE(!foreign);
  CHECK(foreign.error().message == "it is no session of ingot");
  std::string bytes = session_bytes(made());
  bytes[18] = 2;  // the version follows the magic
  const auto newer = parse_session(bytes);
  REQUIRE(!newer);
  CHECK(newer.error().code == ErrorCode::unsupported);
  CHECK(newer.error().message.find("format 2") != std::string::npos);
}

TEST_CASE("a state that compresses absurdly well is left out", "[cpu][chat]") {
  SavedSession session = made();
  session.sequences[0].state.assign(std::size_t{64} << 20, '\0');
  const SavedSession back = value_or_throw(parse_session(session_bytes(session)));
  CHECK(back.sequences.empty());
  CHECK(back.messages == session.messages);
}

TEST_CASE("session files are their owner's", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "a.session";
  const Digest written = value_or_throw(write_session(file, made()));
  CHECK(static_cast<const SavedSession&>(*read_session(file)) == made());
  CHECK(read_session(file)->checksum == written);
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const auto missing = read_session(folder / "no.session");
  REQUIRE(!missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(!read_session(folder.path()));
}

TEST_CASE("a session replaces its own content alone", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "a.session";
  const auto refused = [&](const MayReplace& replace, std::string_view why) {
    const std::string before = read_file(file);
    const auto written = write_session(file, made(), replace);
    REQUIRE(!written);
    CHECK(written.error().code == ErrorCode::invalid_argument);
    CHECK(written.error().message.find(why) != std::string::npos);
    CHECK(read_file(file) == before);
  };
  const Digest first = value_or_throw(write_session(file, {}));
  refused({}, "another session is there");
  const Digest second = value_or_throw(write_session(file, made(), {.known = first}));
  CHECK(second != first);
  refused({.known = first}, "it has changed since");
  value_or_throw(write_session(file, {}, {.known = first, .any_session = true}));
  // What is no session is never replaced, whatever is asked for.
  for (const char* bytes : {"notes", "\x89ingot sess"}) {
    write_file(file, bytes);
    refused({.known = first}, bytes[0] == 'n' ? "is no session of ingot" : "has changed");
  }
  write_file(file, "notes");
  refused({.any_session = true}, "is no session of ingot");
}

TEST_CASE("a session is written beside no folder and over no device", "[cpu][chat]") {
  const TempDir folder;
  const auto missing = write_session(folder / "no/a.session", made());
  REQUIRE(!missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(!std::filesystem::exists(folder / "no"));
  const auto fifo = folder / "fifo.session";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(!write_session(fifo, made(), {.any_session = true}));
  CHECK(!write_session("/dev/null", made(), {.any_session = true}));
  CHECK(!write_session(folder.path(), made(), {.any_session = true}));
  const auto read = read_session(fifo);  // which nobody writes to
  REQUIRE(!read);
  CHECK(read.error().message.find("no regular file") != std::string::npos);
  write_file(folder / "notes", "notes");
  std::filesystem::create_symlink(folder / "notes", folder / "link.session");
  CHECK(!write_session(folder / "link.session", made(), {.any_session = true}));
  CHECK(read_file(folder / "notes") == "notes");
}

TEST_CASE("of two that write one session at once, both learn who was first", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "a.session";
  std::vector<std::future<bool>> writers;
  for (int i = 0; i < 8; ++i) {
    writers.push_back(std::async(std::launch::async, [&, i] {
      SavedSession mine = made();
      mine.model = std::to_string(i);
      return write_session(file, mine).has_value();
    }));
  }
  int written = 0;
  for (auto& writer : writers)
    written += writer.get();
  CHECK(written == 1);
}

TEST_CASE("a writer that hangs holds up no other for ever", "[cpu][chat]") {
  const TempDir folder;
  const FileDescriptor held(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(held.get(), LOCK_EX) == 0);
  const auto start = std::chrono::steady_clock::now();
  CHECK(write_session(folder / "x.session", made()));
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took >= std::chrono::seconds(9));
  CHECK(took < std::chrono::seconds(30) * test::kPatience);
  CHECK(read_session(folder / "x.session"));
}

TEST_CASE("names of sessions are names of files, and paths are paths", "[cpu][chat]") {
  const TempDir folder;
  const SessionStore store(folder / "sessions");
  CHECK(*store.file_of("plan") == folder / "sessions/plan.session");
  CHECK(*store.file_of("\xE4\xB8\xAD") == folder / "sessions/\xE4\xB8\xAD.session");
  CHECK(*store.file_of("./plan") == "./plan");
  CHECK(*store.file_of("plan.session") == "plan.session");
  for (const char* bad : {"", ".hidden", "-x", "two words", "a\nb"})
    CHECK(!store.file_of(bad));
  CHECK(!store.file_of(std::string(101, 'x')));
  CHECK(!SessionStore({}).file_of("plan"));
  CHECK(SessionStore({}).list().empty());
  CHECK(store.list().empty());
  value_or_throw(store.make_folder_of(*store.file_of("plan")));
  value_or_throw(write_session(*store.file_of("plan"), {}));
  CHECK((std::filesystem::status(folder / "sessions").permissions() &
         std::filesystem::perms::all) == std::filesystem::perms::owner_all);
  value_or_throw(store.make_folder_of(folder / "users/own.session"));
  CHECK(!std::filesystem::exists(folder / "users"));
  write_file(folder / "sessions/other.txt", "");
  REQUIRE(store.list().size() == 1);
  CHECK(store.list()[0].name == "plan");
  CHECK(SessionStore::numbered("plan", 2) == "plan-2");
  CHECK(SessionStore::numbered("./plan.session", 3) == "./plan-3.session");
  CHECK(SessionStore::check_name(SessionStore::automatic_name()));
}
