#include "runtime/jit/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/base/hash.hpp"

namespace ingot::jit {
namespace {

// magic, schema, zstd frame, checksum over all before it. The frame holds a count, then for each
// entry its file name and its encoding with nothing compressed; then a count, and for each file of
// the other cache its name and its bytes. Schema 1 ended behind the entries.
constexpr std::string_view kMagic = "ingot-bundle\n";
constexpr std::uint64_t kSchema = 2;
constexpr int kLevel = 12;
constexpr std::size_t kMostBytes = std::size_t{8} << 30;
constexpr std::size_t kChecksumBytes = sizeof(Digest::bytes);

std::string checksum_of(std::string_view bytes) {
  const Digest digest = digest_of(bytes);
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// A name that stays within the folder that it is written to.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") ==
             std::string_view::npos;
}

std::string schema_message(std::string_view origin, std::uint64_t schema) {
  const std::string_view what = schema < kSchema
                                    ? "made by an older ingot, which had no tuning choices in it; "
                                      "export the cache again with this one"
                                    : "made by a newer ingot; use that one, or export the cache "
                                      "again with this one";
  return fmt::format("kernel bundle {}: its format is {}, this program reads {}: {}", origin,
                     schema, kSchema, what);
}

}  // namespace

std::string encode_bundle(const Bundle& bundle) {
  ByteWriter content;
  content.u64(bundle.kernels.size());
  for (const CacheEntry& entry : bundle.kernels) {
    content.text(CubinCache::file_name(entry.manifest));
    content.text(encode_entry(entry, Packing::plain));
  }
  content.u64(bundle.files.size());
  for (const BundleFile& file : bundle.files) {
    content.text(file.name);
    content.text(file.bytes);
  }
  ByteWriter out;
  out.u64(kSchema);
  out.text(zstd_compress(content.take(), kLevel));
  std::string bytes = std::string(kMagic) + out.take();
  return bytes + checksum_of(bytes);
}

Result<Bundle> decode_bundle(std::string_view bytes, std::string_view origin) {
  const auto corrupt = [&](std::string_view why) {
    return fail(ErrorCode::corrupt,
                fmt::format("kernel bundle {}: {}; export or fetch it again", origin, why));
  };
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kChecksumBytes) {
    return corrupt("not a bundle, or cut off");
  }
  const std::string_view sealed = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (checksum_of(sealed) != bytes.substr(sealed.size())) {
    return corrupt("its checksum does not match its content (cut off?)");
  }
  ByteReader head(sealed.substr(kMagic.size()));
  if (const std::uint64_t schema = head.u64(); schema != kSchema) {
    return fail(ErrorCode::unsupported, schema_message(origin, schema));
  }
  const std::string_view frame = head.text();
  if (!head.done()) return corrupt("its length does not fit");
  const auto content = zstd_decompress(frame, kMostBytes);
  if (!content) return corrupt(content.error().message);

  ByteReader in(*content);
  Bundle bundle;
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    const std::string name(in.text());
    auto entry = decode_entry(in.text(), fmt::format("{}:{}", origin, name));
    if (!in.ok()) break;
    if (!entry) return tl::unexpected(entry.error());
    if (name != CubinCache::file_name(entry->manifest)) {
      return corrupt(fmt::format("an entry calls itself \"{}\", its key is {}", name,
                                 CubinCache::file_name(entry->manifest)));
    }
    bundle.kernels.push_back(std::move(*entry));
  }
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    std::string name(in.text());
    std::string file_bytes(in.text());
    if (!in.ok()) break;
    if (!is_plain_name(name)) {
      return corrupt(fmt::format("a file calls itself \"{}\"", name));
    }
    bundle.files.push_back({std::move(name), std::move(file_bytes)});
  }
  if (!in.done()) return corrupt("its entries do not fit its length");
  return bundle;
}

Result<ExportResult> export_bundle(const std::vector<CubinCache>& layers,
                                   const std::vector<std::string>& archs,
                                   const std::filesystem::path& file,
                                   std::vector<BundleFile> files) {
  ExportResult result;
  Bundle bundle{.files = std::move(files)};
  std::set<std::string> names;
  for (const CubinCache& layer : layers) {
    for (const CubinCache::File& candidate : layer.files()) {
      auto entry = CubinCache::read(candidate.path);
      if (!entry) {
        result.damaged += entry.error().code == ErrorCode::corrupt ? 1 : 0;
        continue;
      }
      const std::string& arch = entry->manifest.arch;
      if (!archs.empty() && std::find(archs.begin(), archs.end(), arch) == archs.end()) continue;
      if (!names.insert(candidate.path.filename().string()).second) continue;
      ++(entry->is_barred() ? result.bars : result.kernels);
      bundle.kernels.push_back(std::move(*entry));
    }
  }
  if (bundle.kernels.empty() && bundle.files.empty()) {
    return fail(
        ErrorCode::not_found,
        fmt::format("exporting to {}: the cache holds nothing{}; fill it with `ingot prewarm`",
                    file.string(),
                    archs.empty() ? "" : fmt::format(" for {}", fmt::join(archs, ", "))));
  }
  result.files = static_cast<int>(bundle.files.size());
  const std::string bytes = encode_bundle(bundle);
  result.bundle_bytes = bytes.size();
  const auto target = file.has_parent_path() ? file : std::filesystem::path(".") / file;
  if (auto published = publish_file(target, bytes); !published) {
    return tl::unexpected(published.error());
  }
  return result;
}

Result<Bundle> read_bundle(const std::filesystem::path& file) {
  const auto bytes = read_whole_file(file);
  if (!bytes) return tl::unexpected(bytes.error());
  return decode_bundle(*bytes, file.string());
}

Result<ImportResult> import_kernels(const Bundle& bundle, const CubinCache& cache) {
  ImportResult result;
  for (const CacheEntry& entry : bundle.kernels) {
    if (cache.find(entry.manifest)) {
      ++result.known;
      continue;
    }
    if (auto published = cache.publish(entry); !published) {
      return tl::unexpected(published.error());
    }
    ++result.added;
  }
  return result;
}

}  // namespace ingot::jit
