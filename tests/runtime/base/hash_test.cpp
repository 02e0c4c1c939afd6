#include "runtime/base/hash.hpp"

#include <catch2/catch.hpp>

#include "runtime/base/build_id.hpp"
#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("digests are XXH3's on every machine", "[cpu][base]") {
  // Source: xxHash's own test vectors (XXH3 128 bits, seed 0, no input).
  CHECK(digest_of("").hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(digest_of("a") != digest_of("b"));
  const test::TempDir folder;
  const std::string bytes(3'000'000, 'q');  // several pieces
  test::write_file(folder / "f", bytes);
  CHECK(*digest_file(folder / "f") == digest_of(bytes));
  CHECK(digest_file(folder / "absent").error().code == ErrorCode::not_found);
}

TEST_CASE("a shared object is known by its build id, another file by its digest", "[cpu][base]") {
  const test::TempDir folder;
  test::write_file(folder / "plain", "no ELF");
  CHECK(*build_id_of(folder / "plain") == "xxh3-" + digest_of("no ELF").hex());
  CHECK(build_id_of(folder / "absent").error().code == ErrorCode::not_found);
  // glibc carries one on every distribution that we know.
  const auto libc = build_id_of("/lib/x86_64-linux-gnu/libc.so.6");
  if (libc) CHECK(libc->find_first_not_of("0123456789abcdef") == std::string::npos);
  // An ELF header whose tables lead nowhere is a file like any other.
  std::string torn = test::read_file("/proc/self/exe").substr(0, 100);
  test::write_file(folder / "torn", torn);
  CHECK_THAT(*build_id_of(folder / "torn"), Catch::StartsWith("xxh3-"));
}

TEST_CASE("compressed bytes come back, damaged and oversized ones are refused", "[cpu][base]") {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += std::to_string(i * i);
  for (const int level : {1, 6, 12}) {
    const std::string frame = zstd_compress(text, level);
    CHECK(frame.size() < text.size());
    CHECK(*zstd_decompress(frame, text.size()) == text);
    CHECK_THAT(zstd_decompress(frame, text.size() - 1).error().message, Catch::Contains("at most"));
    CHECK_FALSE(zstd_decompress(frame.substr(0, frame.size() - 1), text.size()));
    CHECK_FALSE(zstd_decompress(frame + "x", text.size()));
  }
  CHECK_FALSE(zstd_decompress("", 10));
  CHECK_FALSE(zstd_decompress("not zstd at all", 10));
  CHECK(*zstd_decompress(zstd_compress("", 3), 10) == "");
}

TEST_CASE("a byte stream reads back what was written and stops at its end", "[cpu][base]") {
  ByteWriter out;
  out.u64(7);
  out.text("seven");
  const std::string bytes = out.take();
  ByteReader in(bytes);
  CHECK(in.u64() == 7);
  CHECK(in.text() == "seven");
  CHECK(in.done());
  CHECK(in.u64() == 0);
  CHECK_FALSE(in.ok());
  ByteReader lying("\xff\xff\xff\xff\xff\xff\xff\x7f");
  CHECK(lying.text().empty());
  CHECK_FALSE(lying.ok());
}

TEST_CASE("values are made of bytes, of none too", "[cpu][base]") {
  std::vector<std::uint16_t> values = {7};
  assign_values(values, std::string_view("x\x01\x00\x02\x01", 5).substr(1));
  CHECK(values == std::vector<std::uint16_t>{1, 0x102});
  assign_values(values, {});
  CHECK(values.empty());
}
