#include "src/checkpoint/shard_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "runtime/base/mapped_file.hpp"
#include "runtime/base/why_not.hpp"
#include "src/checkpoint/strict_json.hpp"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kExtension = ".safetensors";

bool is_shard_name(std::string_view name) {
  return name.size() > kExtension.size() && name.ends_with(kExtension) &&
         name.find('/') == name.npos && name.find('\0') == name.npos && name[0] != '.';
}

/// "model-00003-of-00046.safetensors" → stem "model", number 3, count 46.
struct NumberedName {
  std::string stem;
  int number = 0;
  int count = 0;
};

std::optional<NumberedName> parse_numbered(std::string_view name) {
  constexpr std::string_view kPattern = "-00001-of-00046.safetensors";
  if (name.size() < kPattern.size()) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kPattern.size());
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !tail.ends_with(kExtension)) {
    return std::nullopt;
  }
  NumberedName parsed;
  parsed.stem = name.substr(0, name.size() - kPattern.size());
  const auto digits = [&](std::size_t at, int& out) {
    const char* end = tail.data() + at + 5;
    const auto result = std::from_chars(tail.data() + at, end, out);
    return result.ec == std::errc() && result.ptr == end && out > 0;
  };
  if (!digits(1, parsed.number) || !digits(10, parsed.count)) return std::nullopt;
  return parsed;
}

void report_missing(const fs::path& directory, const std::vector<std::string>& missing,
                    Problems& problems) {
  for (const std::string& name : missing) {
    problems.add(ErrorCode::not_found,
                 fmt::format("shard {} is missing; fetch it again", (directory / name).string()));
  }
}

/// Without an index the names tell how many shards there are.
void check_numbering(const fs::path& directory, const std::set<std::string>& present,
                     Problems& problems) {
  std::map<std::pair<std::string, int>, int> sets;  // (stem, count) → shards present
  for (const std::string& name : present) {
    if (const auto parsed = parse_numbered(name)) ++sets[{parsed->stem, parsed->count}];
  }
  std::vector<std::string> missing;
  for (const auto& [set, shards] : sets) {
    const auto& [stem, count] = set;
    for (int number = 1; number <= count && shards < count; ++number) {
      std::string name = fmt::format("{}-{:05}-of-{:05}{}", stem, number, count, kExtension);
      if (!present.contains(name)) missing.push_back(std::move(name));
    }
  }
  report_missing(directory, missing, problems);
}

std::optional<ShardIndex> read_index(const fs::path& file, Problems& problems) {
  const auto mapped = MappedFile::open(file);
  if (!mapped) {
    problems.add(mapped.error());
    return std::nullopt;
  }
  return parse_shard_index(mapped->text(), file.string(), problems);
}

}  // namespace

std::optional<ShardIndex> parse_shard_index(std::string_view text, std::string_view origin,
                                            Problems& problems) {
  constexpr std::string_view kRemedy =
      "; fetch the index again, or remove it: the shards are found without it";
  // The largest known has 10 MB; parsing takes some ten times the bytes.
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  if (text.size() > kMostBytes) {
    problems.add(ErrorCode::corrupt, fmt::format("{} has {} bytes; at most {} are supported{}",
                                                 origin, text.size(), kMostBytes, kRemedy));
    return std::nullopt;
  }
  const Result<json> parsed = parse_strict_json(text, origin);
  if (!parsed) {
    problems.add(parsed.error().code, parsed.error().message + std::string(kRemedy));
    return std::nullopt;
  }
  const auto map = parsed->is_object() ? parsed->find("weight_map") : parsed->end();
  if (!parsed->is_object() || map == parsed->end() || !map->is_object()) {
    problems.add(ErrorCode::corrupt, fmt::format("{} has no object weight_map{}", origin, kRemedy));
    return std::nullopt;
  }
  ShardIndex index;
  std::set<std::string> bad_names;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      problems.add(ErrorCode::corrupt, fmt::format("{}: the shard of tensor {} is not text{}",
                                                   origin, in_quotes(tensor), kRemedy));
      return std::nullopt;
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (is_shard_name(name)) {
      index.shard_of.emplace(tensor, name);
    } else if (bad_names.insert(name).second) {
      problems.add(ErrorCode::corrupt,
                   fmt::format("{}: tensor {} is in {}; a shard is a plain file name that ends in "
                               "{}, in the index's own folder; fetch the index again",
                               origin, in_quotes(tensor), in_quotes(name), kExtension));
    }
  }
  if (!bad_names.empty()) return std::nullopt;
  return index;
}

ShardList list_shards(const fs::path& directory, Problems& problems) {
  ShardList list;
  std::set<std::string> present;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_shard_name(name)) present.insert(name);
  }
  if (error) {
    problems.add(ErrorCode::io,
                 fmt::format("listing {}: {}", directory.string(), why_not_read(error.value())));
    return list;
  }
  const fs::path index_file = directory / kIndexName;
  const bool has_index = fs::exists(fs::symlink_status(index_file, error));
  if (has_index) {
    list.index = read_index(index_file, problems);
    if (list.index) {
      std::set<std::string> wanted;
      for (const auto& [tensor, shard] : list.index->shard_of)
        wanted.insert(shard);
      std::vector<std::string> missing;
      std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(),
                          std::back_inserter(missing));
      report_missing(directory, missing, problems);
      for (const std::string& name : present) {
        if (wanted.contains(name)) continue;
        problems.add(ErrorCode::corrupt,
                     fmt::format("shard {} is not in {}; remove it, or fetch the index again",
                                 (directory / name).string(), kIndexName));
      }
    }
  } else {
    check_numbering(directory, present, problems);
  }
  if (present.empty() && !list.index) {
    problems.add(ErrorCode::not_found,
                 fmt::format("{} holds no *.safetensors file; give the folder of a checkpoint",
                             directory.string()));
  }
  for (const std::string& name : present)
    list.files.push_back(directory / name);
  return list;
}

}  // namespace ingot
