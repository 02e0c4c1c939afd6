#include "runtime/jit/cache_entry.hpp"

#include <catch2/catch.hpp>

#include "runtime/base/hash.hpp"

using namespace ingot;

namespace {

jit::CacheEntry sample() {
  jit::CacheEntry entry{
      .manifest = {.family = "k",
                   .arch = "sm_80",
                   .compiler = {"13.0", "b"},
                   .options = {"-x"},
                   .source_digest = "0123",
                   .params = {{"int", "N", 1}}},
      .barred = {},
      .source = "constexpr int N = 1;\nint kernel;\n",
      .kernel = {.cubin = {},
                 .log = "ptxas info\n",
                 .resources = {.registers = 40, .stack_bytes = 8, .smem_bytes = 512},
                 .seconds = 0.25}};
  for (const char c : std::string("\x7f"
                                  "ELF and code")) {
    entry.kernel.cubin.push_back(static_cast<std::byte>(c));
  }
  return entry;
}

/// The entry with its checksum made right again, as a damage that the checksum does not see.
std::string resealed(std::string bytes) {
  bytes.resize(bytes.size() - 16);
  const Digest digest = digest_of(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("an entry holds manifest, source, log, resources and cubin", "[cpu][jit]") {
  const auto decoded = jit::decode_entry(jit::encode_entry(sample()), "x");
  REQUIRE(decoded);
  CHECK(decoded->manifest == sample().manifest);
  CHECK(decoded->source == sample().source);
  CHECK(decoded->kernel.log == sample().kernel.log);
  CHECK(decoded->kernel.resources == sample().kernel.resources);
  CHECK(decoded->kernel.seconds == 0.25);
  CHECK(decoded->kernel.cubin == sample().kernel.cubin);
  CHECK_FALSE(decoded->is_barred());
}

TEST_CASE("a bar is a small entry with its reason and log", "[cpu][jit]") {
  jit::CacheEntry bar = sample();
  bar.barred = "it spills registers";
  const auto bytes = jit::encode_entry(bar);
  CHECK(bytes.size() < 600);
  const auto decoded = jit::decode_entry(bytes, "x");
  REQUIRE(decoded);
  CHECK(decoded->barred == bar.barred);
  CHECK(decoded->kernel.log == bar.kernel.log);
  CHECK(decoded->kernel.cubin.empty());
}

TEST_CASE("every flipped bit, every cut and every added byte is noticed", "[cpu][jit]") {
  const std::string bytes = jit::encode_entry(sample());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      CAPTURE(at, bit);
      REQUIRE_FALSE(jit::decode_entry(damaged, "x"));
    }
    REQUIRE_FALSE(jit::decode_entry(bytes.substr(0, at), "x"));
  }
  CHECK_FALSE(jit::decode_entry(bytes + '\0', "x"));
  CHECK_FALSE(jit::decode_entry("", "x"));
  CHECK(jit::decode_entry(bytes.substr(0, 40), "f.kernel").error().code == ErrorCode::corrupt);
  CHECK_THAT(jit::decode_entry(bytes.substr(0, 40), "f.kernel").error().message,
             Catch::Contains("f.kernel"));
}

TEST_CASE("content that is wrong under a right checksum is refused, not believed", "[cpu][jit]") {
  const std::string bytes = jit::encode_entry(sample());
  for (std::size_t at = 0; at + 16 < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    // Never a crash; what still reads as an entry has all that an entry must have.
    if (const auto decoded = jit::decode_entry(resealed(damaged), "x")) {
      CHECK(decoded->kernel.cubin.size() >= 4);
      CHECK_FALSE(decoded->manifest.text().empty());
    }
  }
}

TEST_CASE("an entry of another format is named as such", "[cpu][jit]") {
  std::string bytes = jit::encode_entry(sample());
  bytes[std::string("ingot-kernel\n").size()] = 2;
  const auto decoded = jit::decode_entry(resealed(bytes), "x");
  REQUIRE_FALSE(decoded);
  CHECK(decoded.error().code == ErrorCode::unsupported);
  CHECK_THAT(decoded.error().message, Catch::Contains("format 2"));
}
