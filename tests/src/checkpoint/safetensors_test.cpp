#include "src/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/made_checkpoint.hpp"
#include "tests/support/peak_memory.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;

namespace {

/// A sound file of two tensors, 24 bytes of data.
const std::string kHeader = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                            R"("b":{"dtype":"I8","shape":[8],"data_offsets":[16,24]}})";

std::string sound_file() {
  return test::safetensors_bytes(kHeader, std::string(24, 'x'));
}

/// A file that says its header has `length` bytes, whatever follows.
std::string with_length(std::uint64_t length) {
  std::string file = sound_file();
  std::memcpy(file.data(), &length, sizeof(length));
  return file;
}

std::optional<SafetensorsHeader> read(const std::string& file, Problems& problems) {
  return read_safetensors_header(std::as_bytes(std::span(file)), "shard", problems);
}

/// All problems of a file, a line each; fails the test if there are none or it was accepted.
std::string refusal(const std::string& file) {
  Problems problems;
  CHECK(!read(file, problems));
  REQUIRE(!problems.empty());
  std::string text;
  for (const Problem& problem : problems.list()) {
    CHECK(problem.text.starts_with("shard: "));
    CHECK(exit_status(problem.code) == 2);
    text += problem.text + "\n";
  }
  return text;
}

std::string refusal_of_header(const std::string& json, std::size_t data_bytes = 24) {
  return refusal(test::safetensors_bytes(json, std::string(data_bytes, 'x')));
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// A header of `count` empty tensors.
std::string many_tensors(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "" : ",", i);
  }
  return header + "}";
}

/// `kHeader` with the offsets and shape of `b` replaced.
std::string header_with_b(std::string_view dtype, std::string_view shape,
                          std::string_view offsets) {
  return fmt::format(R"({{"a":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}},)"
                     R"("b":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})",
                     dtype, shape, offsets);
}

/// A header of so many tensors of a dtype that does not exist.
std::string header_of_unknown_dtypes(int tensors) {
  std::string header(1, '{');
  for (int i = 0; i < tensors; ++i) {
    header += fmt::format(R"("t{}":{{"dtype":"F4","shape":[1],"data_offsets":[0,0]}},)", i);
  }
  header.back() = '}';
  return header;
}

}  // namespace

TEST_CASE("a sound safetensors header is read in the order of the data", "[cpu][checkpoint]") {
  Problems problems;
  const auto header = read(
      test::safetensors_bytes(
          R"({"__metadata__":{"format":"pt"},)"
          R"("z":{"dtype":"I8","shape":[8],"data_offsets":[16,24]},)"
          R"("a":{"shape":[2,2],"data_offsets":[0,16],"dtype":"F32"},)"
          R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[24,32]},)"
          R"("empty":{"dtype":"BF16","shape":[0,9223372036854775807,4],"data_offsets":[32,32]}}   )",
          std::string(32, 'x')),
      problems);
  REQUIRE(problems.empty());
  REQUIRE(header->entries.size() == 4);
  CHECK(header->entries[0].name == "a");
  CHECK(header->entries[0].dtype == Dtype::f32);
  CHECK(header->entries[0].shape == std::vector<std::int64_t>{2, 2});
  CHECK(header->entries[1].name == "z");
  CHECK(header->entries[2].shape.empty());
  CHECK(header->entries[3].end == 32);
}

TEST_CASE("shard cut by 1 byte", "[cpu][checkpoint]") {
  const std::string file = sound_file();
  CHECK(contains(refusal(file.substr(0, file.size() - 1)), "cut short"));
}

TEST_CASE("shard cut by half", "[cpu][checkpoint]") {
  const std::string file = sound_file();
  CHECK(contains(refusal(file.substr(0, file.size() / 2)), "cut short"));
}

TEST_CASE("shard cut at any byte", "[cpu][checkpoint]") {
  const std::string file = sound_file();
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes)
    refusal(file.substr(0, bytes));
}

TEST_CASE("shard empty", "[cpu][checkpoint]") {
  CHECK(contains(refusal(""), "0 bytes"));
}

TEST_CASE("shard one byte too long", "[cpu][checkpoint]") {
  CHECK(contains(refusal(sound_file() + "x"), "1 byte behind the last tensor"));
}

TEST_CASE("header length 0", "[cpu][checkpoint]") {
  CHECK(contains(refusal(with_length(0)), "not JSON"));
}

TEST_CASE("header length 7", "[cpu][checkpoint]") {
  CHECK(contains(refusal(with_length(7)), "not JSON"));
}

TEST_CASE("header length 2^63 and beyond", "[cpu][checkpoint]") {
  const std::uint64_t length =
      GENERATE(std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, (std::uint64_t{1} << 63) - 1);
  CHECK(contains(refusal(with_length(length)), fmt::to_string(length)));
}

TEST_CASE("header length beyond the file", "[cpu][checkpoint]") {
  const std::uint64_t beyond = sound_file().size() - 8 + 1;
  CHECK(contains(refusal(with_length(beyond)), "cut short"));
}

TEST_CASE("a header of 99 MB is accepted and one of 101 MB refused", "[cpu][checkpoint]") {
  std::string header = kHeader;
  header.resize(99'000'000, ' ');
  Problems problems;
  CHECK(read(test::safetensors_bytes(header, std::string(24, 'x')), problems));
  CHECK(problems.empty());
  header.resize(101'000'000, ' ');
  CHECK(contains(refusal_of_header(header), "101000000"));
}

TEST_CASE("header not JSON", "[cpu][checkpoint]") {
  const std::string header =
      GENERATE(as<std::string>{}, "{", "}", "{\"a\"", "{\"a\":}", "\xff\xfe{}", "{} {}", "hello",
               "{\"a\":{\"dtype\":\"F32\",}}", "{\"\xc3\":{}}", std::string("{\0}", 3));
  CAPTURE(header);
  CHECK(contains(refusal_of_header(header), "JSON"));
}

TEST_CASE("header not an object", "[cpu][checkpoint]") {
  const char* header = GENERATE("[]", "null", "7", "-7", "1.5", "\"x\"", "true", "[{}]");
  CAPTURE(header);
  CHECK(contains(refusal_of_header(header), "object"));
}

TEST_CASE("header deeply nested", "[cpu][checkpoint]") {
  refusal_of_header(std::string(1'000'000, '['));
  std::string nested;
  for (int i = 0; i < 100'000; ++i)
    nested += "{\"a\":";
  refusal_of_header(nested);
}

TEST_CASE("tensor declared wrongly", "[cpu][checkpoint]") {
  const char* header = GENERATE(
      R"({"a":7})", R"({"a":null})", R"({"a":[]})", R"({"a":{}})",
      R"({"a":{"dtype":"F32","shape":[1]}})", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})",
      R"({"a":{"shape":[1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":{}}})",
      R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"zip":"x"}})",
      R"({"__metadata__":7})", R"({"__metadata__":{"a":7}})", R"({"__metadata__":{"a":{}}})",
      R"({"__metadata__":{},"__metadata__":{}})");
  CAPTURE(header);
  refusal_of_header(header, 4);
}

TEST_CASE("offsets reversed", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("I8", "[8]", "[24,16]")), "reversed"));
}

TEST_CASE("offsets overlapping", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("I8", "[9]", "[15,24]")), "inside the tensor"));
}

TEST_CASE("offsets leaving a gap", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("I8", "[7]", "[17,24]")), "gap of 1 byte lies"));
}

TEST_CASE("offsets past the end", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("I8", "[9]", "[16,25]")), "only 24"));
}

TEST_CASE("offsets at the top of 64 bits", "[cpu][checkpoint]") {
  CHECK(contains(
      refusal_of_header(header_with_b("I8", "[8]", "[18446744073709551607,18446744073709551615]")),
      "only 24"));
}

TEST_CASE("size is not shape times width", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("BF16", "[8]", "[16,24]")), "takes 16"));
  CHECK(contains(refusal_of_header(header_with_b("I8", "[0]", "[16,24]")), "takes 0"));
}

TEST_CASE("shape whose product overflows", "[cpu][checkpoint]") {
  const char* shape = GENERATE("[9223372036854775807,2]", "[4294967296,4294967296]",
                               "[9223372036854775807]", "[2147483648,2147483648,2147483648]");
  CAPTURE(shape);
  CHECK(contains(refusal_of_header(header_with_b("F64", shape, "[16,24]")), "overflows"));
}

TEST_CASE("shape with a size beyond 2^63", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(header_with_b("I8", "[9223372036854775808]", "[16,24]")),
                 "9223372036854775808"));
}

TEST_CASE("duplicate tensor name", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(R"({"a":{"dtype":"I8","shape":[12],"data_offsets":[0,12]},)"
                                   R"("a":{"dtype":"I8","shape":[12],"data_offsets":[12,24]}})"),
                 "given twice"));
}

TEST_CASE("unknown dtype", "[cpu][checkpoint]") {
  const char* dtype = GENERATE("F4", "f32", "", "F8_E8M1", "BF16 ");
  CHECK(contains(refusal_of_header(header_with_b(dtype, "[8]", "[16,24]")),
                 fmt::format("unknown dtype \"{}\"", dtype)));
}

TEST_CASE("all bad tensors of a shard are named at once, up to a bound", "[cpu][checkpoint]") {
  const std::string three = refusal_of_header(header_of_unknown_dtypes(3), 0);
  for (const char* name : {"\"t0\"", "\"t1\"", "\"t2\""})
    CHECK(contains(three, name));
  const std::string many = refusal_of_header(header_of_unknown_dtypes(10'000), 0);
  CHECK(contains(many, "and 9950 more"));
  CHECK(many.size() < 10'000);
}

TEST_CASE("a tensor with wrong offsets is one problem", "[cpu][checkpoint]") {
  const auto [a, b, word] = GENERATE(table<const char*, const char*, const char*>({
      {"[0,16]", "[24,16]", "reversed"},
      {"[16,0]", "[16,24]", "reversed"},
      {"[0,16]", "[16,32]", "takes 8"},
      {"[0,16]", "[12,24]", "takes 8"},
      {"[0,16]", "[20,24]", "takes 8"},
      {"[0,8]", "[16,24]", "takes 16"},
      {"[0,24]", "[16,24]", "takes 16"},
      {"[0,16]", "[17,25]", "only 24"},
      {"[0,16]", "[15,23]", "inside the tensor"},
      {"[100,116]", "[120,128]", "as do 1 more"},
  }));
  CAPTURE(a, b);
  const std::string text =
      refusal_of_header(fmt::format(R"({{"a":{{"dtype":"F32","shape":[2,2],"data_offsets":{}}},)"
                                    R"("b":{{"dtype":"I8","shape":[8],"data_offsets":{}}}}})",
                                    a, b));
  CAPTURE(text);
  CHECK(contains(text, word));
  if (word != std::string_view("inside the tensor")) {
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  }
}

TEST_CASE("problems that are not listed are counted", "[cpu][checkpoint]") {
  Problems problems;
  CHECK(!read(test::safetensors_bytes(header_of_unknown_dtypes(120), ""), problems));
  CHECK(problems.size() == 120);
  CHECK(problems.list().size() == 51);
  CHECK(contains(problems.to_error("x").message, "x: 120 problems\n"));
  CHECK(contains(problems.list().back().text, "and 70 more, which are not listed"));
}

TEST_CASE("a header that does not begin with a brace is refused", "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header("\xEF\xBB\xBF" + kHeader), "begins with a byte-order mark"));
  CHECK(contains(refusal_of_header(" " + kHeader), "begins with a blank"));
  CHECK(contains(refusal_of_header("\n" + kHeader), "begins with a blank"));
}

TEST_CASE("a header of 99 MB that is JSON to its end is accepted", "[cpu][checkpoint]") {
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; metadata.size() < 98'900'000; ++i)
    metadata += fmt::format(R"({}"k{}":"{}")", i == 0 ? "" : ",", i, std::string(60'000, 'm'));
  metadata += "}," + kHeader.substr(1);
  REQUIRE(metadata.size() > 98'900'000);
  REQUIRE(metadata.size() < 100'000'000);
  Problems problems;
  CHECK(read(test::safetensors_bytes(metadata, std::string(24, 'x')), problems));
  CHECK(problems.empty());
}

TEST_CASE("names in messages are short and printable", "[cpu][checkpoint]") {
  const std::string header =
      fmt::format(R"({{"{}\n\u001b[31m":{{"dtype":"F4","shape":[1],"data_offsets":[0,0]}}}})",
                  std::string(50, 'n'));
  const std::string text = refusal_of_header(header, 0);
  CHECK(contains(text, "\\x0a\\x1b[31m"));
  const std::string huge = fmt::format(
      R"({{"{}":{{"dtype":"F4","shape":[1],"data_offsets":[0,0]}}}})", std::string(1'000'000, 'n'));
  CHECK(refusal_of_header(huge, 0).size() < 500);
}

TEST_CASE("a header of more tensors, longer names or longer values than any model has",
          "[cpu][checkpoint]") {
  CHECK(contains(refusal_of_header(many_tensors(150'001), 0), "more than 150000 objects"));
  CHECK(contains(
      refusal_of_header(header_with_b("I8", "[" + std::string(1'100'000, '1') + "]", "[16,24]")),
      "a number of more than 1048576 bytes at byte"));
  CHECK(contains(refusal_of_header(header_with_b(std::string(1'100'000, 'F'), "[8]", "[16,24]")),
                 "a text of more than 1048576 bytes at byte"));
  CHECK(contains(refusal_of_header("{" + std::string(1'100'000, ' ') + "}"), "a run of blanks"));
  CHECK(contains(
      refusal_of_header(fmt::format(R"({{"{}":{{"dtype":"I8","shape":[8],"data_offsets":[0,8]}}}})",
                                    std::string(257, 'n'))),
      "has 257 bytes, more than 256"));
}

TEST_CASE("refusing a header takes no memory to speak of", "[cpu][checkpoint]") {
  if (test::kSanitized && test::skip("a sanitizer's memory would be measured")) return;
  const std::string file = GENERATE_COPY(
      with_length(std::uint64_t{1} << 63), with_length(99'000'000),
      test::safetensors_bytes(header_with_b("F64", "[1152921504606846976]", "[16,24]"), ""),
      test::safetensors_bytes(std::string(20'000'000, '['), ""),
      test::safetensors_bytes(
          header_with_b("I8", "[" + std::string(20'000'000, '1') + "]", "[16,24]"), ""),
      test::safetensors_bytes(header_with_b(std::string(20'000'000, 'F'), "[8]", "[16,24]"), ""),
      test::safetensors_bytes(many_tensors(400'000), ""));
  const std::size_t grown = test::peak_memory_of([&] {
    Problems problems;
    if (read(file, problems)) throw std::runtime_error("accepted");
  });
  CHECK(grown < 100'000'000);
}
