#include "runtime/jit/cache_entry.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <map>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/base/hash.hpp"

namespace ingot::jit {
namespace {

constexpr std::string_view kMagic = "ingot-kernel\n";
constexpr const char* kZstdSuffix = ".zst";
constexpr int kLevel = 6;
constexpr std::size_t kMostSectionBytes = std::size_t{256} << 20;
constexpr std::size_t kChecksumBytes = sizeof(Digest::bytes);

std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string checksum_of(std::string_view bytes) {
  const Digest digest = digest_of(bytes);
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

bool parse_resources(std::string_view text, CompiledKernel& kernel) {
  std::map<std::string_view, std::string_view> fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return false;
    fields.emplace(line.substr(0, space), line.substr(space + 1));
  }
  const auto read = [&](std::string_view name, auto& value) {
    const auto found = fields.find(name);
    if (found == fields.end()) return false;
    const auto parsed =
        std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return parsed.ec == std::errc();
  };
  Resources& used = kernel.resources;
  return read("registers", used.registers) && read("spill-store-bytes", used.spill_store_bytes) &&
         read("spill-load-bytes", used.spill_load_bytes) && read("stack-bytes", used.stack_bytes) &&
         read("smem-bytes", used.smem_bytes) && read("compile-seconds", kernel.seconds);
}

}  // namespace

std::string resources_text(const CompiledKernel& kernel) {
  const Resources& used = kernel.resources;
  return fmt::format(
      "registers {}\nspill-store-bytes {}\nspill-load-bytes {}\nstack-bytes {}\nsmem-bytes {}\n"
      "compile-seconds {:.3f}\n",
      used.registers, used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes,
      used.smem_bytes, kernel.seconds);
}

std::string encode_entry(const CacheEntry& entry, Packing packing) {
  ByteWriter out;
  out.u64(Manifest::kSchema);
  const auto section = [&](std::string_view name, std::string_view bytes) {
    out.text(name);
    out.text(bytes);
  };
  const auto big_section = [&](const std::string& name, std::string_view bytes) {
    if (packing == Packing::compressed) {
      section(name + kZstdSuffix, zstd_compress(bytes, kLevel));
    } else {
      section(name, bytes);
    }
  };
  section("manifest", entry.manifest.text());
  section("resources", resources_text(entry.kernel));
  if (entry.is_barred()) {
    section("barred", entry.barred);
  } else {
    big_section("source", entry.source);
    big_section("cubin", as_text(entry.kernel.cubin));
  }
  section("log", entry.kernel.log);
  std::string bytes = std::string(kMagic) + out.take();
  return bytes + checksum_of(bytes);
}

Result<CacheEntry> decode_entry(std::string_view bytes, std::string_view origin) {
  const auto corrupt = [&](std::string_view why) {
    return fail(ErrorCode::corrupt, fmt::format("kernel cache entry {}: {}", origin, why));
  };
  if (bytes.size() < kMagic.size() + kChecksumBytes || !bytes.starts_with(kMagic)) {
    return corrupt("not an entry, or cut off");
  }
  const std::string_view content = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (checksum_of(content) != bytes.substr(content.size())) {
    return corrupt("its checksum does not match its content");
  }
  ByteReader in(content.substr(kMagic.size()));
  if (const std::uint64_t schema = in.u64(); schema != Manifest::kSchema) {
    return fail(ErrorCode::unsupported,
                fmt::format("kernel cache entry {}: format {} is not this program's, {}", origin,
                            schema, Manifest::kSchema));
  }
  std::map<std::string, std::string_view, std::less<>> sections;
  while (in.ok() && !in.done()) {
    std::string name(in.text());
    sections.emplace(std::move(name), in.text());
  }
  if (!in.ok()) return corrupt("its sections do not fit its length");

  const auto manifest = Manifest::parse(sections["manifest"]);
  if (!manifest) return corrupt(manifest.error().message);
  CacheEntry entry{
      .manifest = *manifest, .barred = std::string(sections["barred"]), .source = {}, .kernel = {}};
  entry.kernel.log = sections["log"];
  if (!parse_resources(sections["resources"], entry.kernel)) return corrupt("no resources");
  if (entry.is_barred()) return entry;

  const auto big_section = [&](const std::string& name) -> Result<std::string> {
    const auto plain = sections.find(name);
    if (plain != sections.end()) return std::string(plain->second);
    return zstd_decompress(sections[name + kZstdSuffix], kMostSectionBytes);
  };
  auto source = big_section("source");
  if (!source) return corrupt(source.error().message);
  entry.source = std::move(*source);
  auto cubin = big_section("cubin");
  if (!cubin) return corrupt(cubin.error().message);
  if (!cubin->starts_with("\x7f"
                          "ELF"))
    return corrupt("its cubin is no ELF image");
  entry.kernel.cubin.resize(cubin->size());
  std::memcpy(entry.kernel.cubin.data(), cubin->data(), cubin->size());
  return entry;
}

}  // namespace ingot::jit
