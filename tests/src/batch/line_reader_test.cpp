#include "src/batch/line_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// A file descriptor that reads these bytes, in pieces as they come through a pipe.
class Source {
 public:
  explicit Source(const std::vector<std::string>& pieces) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    fd_ = ends[0];
    writer_ = std::thread([pieces, to = ends[1]] {
      for (const std::string& piece : pieces) {
        std::string_view rest = piece;
        while (!rest.empty()) {
          const ssize_t wrote = ::write(to, rest.data(), rest.size());
          if (wrote <= 0) break;
          rest.remove_prefix(static_cast<std::size_t>(wrote));
        }
      }
      ::close(to);
    });
  }
  ~Source() {
    writer_.join();
    ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::thread writer_;
};

std::vector<InputLine> read_all(const std::vector<std::string>& pieces,
                                std::size_t limit = kMaxLineBytes) {
  const Source source(pieces);
  LineReader reader(source.fd(), "test", limit);
  std::vector<InputLine> lines;
  while (auto line = value_or_throw(reader.next()))
    lines.push_back(*line);
  CHECK(reader.at_end());
  return lines;
}

std::vector<std::string> texts(const std::vector<InputLine>& lines) {
  std::vector<std::string> out;
  for (const InputLine& line : lines)
    out.push_back(line.too_long ? "<too long>" : line.text);
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("lines end with LF, CRLF or the end of input", "[cpu][batch]") {
  CHECK(texts(read_all({"a\nb\r\nc"})) == Texts{"a", "b", "c"});
  CHECK(texts(read_all({"a\n"})) == Texts{"a"});
  CHECK(texts(read_all({"a\n\n\nb\n"})) == Texts{"a", "", "", "b"});
  CHECK(texts(read_all({})).empty());
  CHECK(texts(read_all({"\n"})) == Texts{""});
  CHECK(texts(read_all({"a\rb\n"})) == Texts{"a\rb"});  // a CR inside is text
}

TEST_CASE("a byte-order mark is dropped from the first line and nowhere else", "[cpu][batch]") {
  CHECK(texts(read_all({"\xEF\xBB\xBFx\n\xEF\xBB\xBFy\n"})) == Texts{"x", "\xEF\xBB\xBFy"});
}

TEST_CASE("lines are numbered from 1, blank ones too", "[cpu][batch]") {
  const auto lines = read_all({"a\n\nb"});
  REQUIRE(lines.size() == 3);
  CHECK(lines[2].number == 3);
}

TEST_CASE("a line over the limit is skipped to its end and the next is read", "[cpu][batch]") {
  CHECK(texts(read_all({"12345678\n123456789\nend"}, 8)) == Texts{"12345678", "<too long>", "end"});
  CHECK(texts(read_all({"12345678\r\n123456789\r\n"}, 8)) == Texts{"12345678", "<too long>"});
  CHECK(texts(read_all({std::string(3 << 20, 'x'), "yyyy\nshort"}, 1000)) ==
        Texts{"<too long>", "short"});
  CHECK(texts(read_all({std::string(5000, 'x')}, 1000)) == Texts{"<too long>"});
}

TEST_CASE("lines do not depend on how the input arrives", "[cpu][batch]") {
  const std::string text = "\xEF\xBB\xBFone\r\ntwo\n\nthree is longer\nfour";
  const Texts whole = texts(read_all({text}, 10));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(texts(read_all({text.substr(0, cut), text.substr(cut)}, 10)) == whole);
  }
}

TEST_CASE("blanks alone make a blank line", "[cpu][batch]") {
  CHECK(is_blank(""));
  CHECK(is_blank(" \t\r"));
  CHECK(!is_blank(" x"));
  CHECK(!is_blank(std::string_view("\0", 1)));
}

TEST_CASE("a read that fails is an error that names the input", "[cpu][batch]") {
  const test::TempDir folder;
  const int fd = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(fd >= 0);
  LineReader reader(fd, "the input", 100);
  const auto line = reader.next();
  ::close(fd);
  REQUIRE(!line);
  CHECK(line.error().code == ErrorCode::io);
  CHECK(line.error().message.find("the input") != std::string::npos);
}

TEST_CASE("a wait for input ends where it is to be woken, also if that came before it",
          "[cpu][batch]") {
  int input[2], wake[2];
  REQUIRE(::pipe(input) == 0);
  REQUIRE(::pipe(wake) == 0);
  LineReader reader(input[0], "the input", 100, wake[0]);
  REQUIRE(::write(input[1], "a\nb", 3) == 3);
  CHECK(reader.next().value().value().text == "a");
  std::thread waker;
  const bool before = GENERATE(true, false);
  if (before) {
    REQUIRE(::write(wake[1], "", 1) == 1);
  } else {
    waker = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      (void)!::write(wake[1], "", 1);
    });
  }
  CHECK(!reader.next().value());
  CHECK(reader.interrupted());
  CHECK(!reader.at_end());
  if (waker.joinable()) waker.join();
  // Nothing is lost: once the reason is gone it goes on.
  char byte;
  REQUIRE(::read(wake[0], &byte, 1) == 1);
  REQUIRE(::write(input[1], "c\n", 2) == 2);
  CHECK(reader.next().value().value().text == "bc");
  CHECK(!reader.interrupted());
  for (const int fd : {input[0], input[1], wake[0], wake[1]})
    ::close(fd);
}

TEST_CASE("a reader goes on with another descriptor as if they were one", "[cpu][batch]") {
  const Source first({"one\ntw"}), second({"o\r\n", "three"});
  LineReader reader(first.fd(), "test");
  reader.then(second.fd());
  std::vector<InputLine> lines;
  while (auto line = value_or_throw(reader.next()))
    lines.push_back(*line);
  CHECK(texts(lines) == std::vector<std::string>{"one", "two", "three"});
  CHECK(reader.at_end());
}

TEST_CASE("a text in UTF-16 is refused by name", "[cpu][batch]") {
  for (const std::string mark : {"\xFF\xFE", "\xFE\xFF"}) {
    const Source source({mark + std::string("h\0i\0\n\0", 6)});
    LineReader reader(source.fd(), "in.txt");
    const auto line = reader.next();
    REQUIRE(!line);
    CHECK(exit_status(line.error().code) == 2);
    CHECK(line.error().message.find("in.txt: it is UTF-16") != std::string::npos);
  }
  CHECK(texts(read_all({"x\n\xFF\xFE\n"})).size() == 2);
}

TEST_CASE("a text in UTF-16 without a byte-order mark is refused by its zeros", "[cpu][batch]") {
  const auto refused = [](const std::string& text, std::string_view encoding) {
    CAPTURE(text);
    const Source source({text});
    LineReader reader(source.fd(), "in.jsonl");
    const auto line = reader.next();
    REQUIRE(!line);
    CHECK(exit_status(line.error().code) == 2);
    CHECK(line.error().message.find("in.jsonl: it is UTF-16") != std::string::npos);
    CHECK(line.error().message.find("iconv -f " + std::string(encoding) + " -t UTF-8") !=
          std::string::npos);
  };
  refused(std::string("{\0\"\0a\0\"\0", 8), "UTF-16LE");
  refused(std::string("\0{\0\"\0a\0\"\0\n", 10), "UTF-16BE");
  refused(std::string("\n\0h\0i\0", 6), "UTF-16LE");  // nothing but a blank line before it
  // Lines that went wrong in a good file are lines of their own.
  CHECK(texts(read_all({std::string("a\0b\nall the others are good lines\n", 34)})).size() == 2);
  CHECK(texts(read_all({std::string("\0\0\0\0\n", 5)})).size() == 1);
}

TEST_CASE("a line without end is refused after 1 GiB, and what stands before it is read",
          "[cpu][batch]") {
  const test::TempDir folder;
  test::write_file(folder / "in", "one\n");
  std::filesystem::resize_file(folder / "in", (std::uintmax_t{1} << 30) + (1 << 20));  // sparse
  const int fd = ::open((folder / "in").c_str(), O_RDONLY | O_CLOEXEC);
  LineReader reader(fd, "in");
  CHECK(value_or_throw(reader.next())->text == "one");
  const auto refused = reader.next();
  ::close(fd);
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(refused.error().message ==
        "reading in: line 2 has more than 1024 MiB and no end in sight; end it, or name another "
        "file");
}
