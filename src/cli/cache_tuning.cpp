#include "src/cli/cache_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/printable.hpp"
#include "src/cli/json_line.hpp"
#include "src/cli/local_cards.hpp"
#include "tuner/choice_table.hpp"
#include "tuner/tune.hpp"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

bool is_wanted(const std::vector<std::string>& archs, const std::string& arch) {
  return archs.empty() || std::find(archs.begin(), archs.end(), arch) != archs.end();
}

int count(const TuningRecord& record, Standing standing) {
  return static_cast<int>(
      std::count_if(record.candidates.begin(), record.candidates.end(),
                    [&](const CandidateRecord& each) { return each.standing == standing; }));
}

Json record_json(const TuningRecord& record, const CacheFile& file) {
  Json line;
  line["kind"] = "tuning";
  line["families"] = Json::array();
  for (const auto& family : record.key.families)
    line["families"].push_back(family.stem);
  line["arch"] = record.key.device.arch;
  line["device"] = record.key.device.name;
  line["driver"] = record.key.device.driver_branch;
  line["tp_size"] = record.key.tp_size;
  line["problem"] = Json::object();
  for (const ProblemField& field : record.key.problem)
    line["problem"][field.name] = field.value;
  line["complete"] = record.complete;
  line["noise"] = record.noise;
  line["gain"] = record.gain();
  line["candidates"] = Json::array();
  for (const CandidateRecord& candidate : record.candidates) {
    line["candidates"].push_back({{"kernel", jit::describe(candidate.variant)},
                                  {"standing", standing_name(candidate.standing)},
                                  {"time_us", candidate.time_us},
                                  {"spread", candidate.spread},
                                  {"reason", candidate.reason}});
  }
  line["rejections"] = record.rejections;
  line["file"] = file.path.string();
  line["bytes"] = file.bytes;
  return line;
}

std::string record_text(const TuningRecord& record) {
  const CandidateRecord& chosen = record.chosen();
  return fmt::format(
      "tuning {}: {}, {:.2f} us, {:.2f} times as fast as the default; noise {:.1f} %, {} ties, {} "
      "barred of {}{}",
      record.key.title(), jit::describe(chosen.variant), chosen.time_us, record.gain(),
      100 * record.noise, count(record, Standing::tie), count(record, Standing::barred),
      record.candidates.size(), record.complete ? "" : "; cut short by its budget");
}

bool serves(const TuningRecord& record, const std::string& family) {
  return std::any_of(record.key.families.begin(), record.key.families.end(),
                     [&](const auto& each) { return each.stem == family; });
}

/// The cards here that have the architecture; none where there is no usable driver.
std::vector<Card> cards_of(const CacheOptions& options, const std::string& arch) {
  std::vector<Card> cards;
  try {
    auto local = local_cards(options.cache);
    if (local) cards = std::move(*local);
  } catch (const EngineError& error) {
    log::debug("{}", error.error().message);
  }
  std::erase_if(cards, [&](const Card& card) { return card.device.arch != arch; });
  return cards;
}

/// The record's key as this machine would make it, as far as that is known without the model.
TuningKey key_here(const TuningRecord& record, const jit::KernelStore& store,
                   const jit::KernelRequest& request, const std::vector<Card>& cards) {
  TuningKey key = record.key;
  key.schema = TuningKey::kSchema;
  key.policy = policy_text(SearchPolicy{}, MeasurePolicy{});
  for (auto& family : key.families) {
    const auto manifest =
        store.manifest({.variant = {.family = family.stem, .params = {}}, .arch = request.arch});
    if (!manifest) continue;  // a family that there is no longer: its digest stands
    family.source_digest = manifest->source_digest;
    key.compiler = manifest->compiler;
  }
  const bool is_here = std::any_of(cards.begin(), cards.end(), [&](const Card& card) {
    return card.device == record.key.device;
  });
  if (!is_here && !cards.empty()) key.device = cards.front().device;
  return key;
}

}  // namespace

TuningList list_tunings(const CacheOptions& options, std::FILE* out) {
  TuningList list;
  for (const auto& layer : tuning_layers(options.cache)) {
    for (const CacheFile& file : layer.files()) {
      const auto record = TuningCache::read(file.path);
      if (!record) {
        ++list.damaged;
        log::warn("{}", record.error().message);
        continue;
      }
      if (!is_wanted(options.archs, record->key.device.arch)) continue;
      ++list.records;
      list.bytes += file.bytes;
      fmt::print(
          out, "{}\n",
          options.json ? json_line(record_json(*record, file)) : printable(record_text(*record)));
    }
  }
  return list;
}

void print_choice_tables(const CacheOptions& options, std::FILE* out) {
  std::vector<TuningRecord> records;
  std::set<std::string> names;  // of several layers the first counts
  for (const auto& layer : tuning_layers(options.cache)) {
    for (const CacheFile& file : layer.files()) {
      auto record = TuningCache::read(file.path);
      if (!record) {
        log::warn("{}", record.error().message);
      } else if (is_wanted(options.archs, record->key.device.arch) &&
                 names.insert(file.path.filename().string()).second) {
        records.push_back(std::move(*record));
      }
    }
  }
  fmt::print(out, "{}", choice_tables(records));
}

std::vector<std::string> explain_tunings(const CacheOptions& options, const jit::KernelStore& store,
                                         const jit::KernelRequest& request) {
  std::vector<std::string> lines;
  std::optional<std::vector<Card>> cards;
  for (const auto& layer : tuning_layers(options.cache)) {
    for (const CacheFile& file : layer.files()) {
      const auto record = TuningCache::read(file.path);
      if (!record) {
        if (file.path.filename().string().starts_with(request.variant.family + "-")) {
          lines.push_back(record.error().message);
        }
        continue;
      }
      if (!serves(*record, request.variant.family)) continue;
      if (record->key.device.arch != request.arch) continue;
      lines.push_back(record_text(*record));
      if (!cards) cards = cards_of(options, request.arch);
      for (std::string& difference :
           differences(key_here(*record, store, request, *cards), record->key))
        lines.push_back("  not used here: " + std::move(difference));
    }
  }
  return lines;
}

TuningExport export_tunings(const CacheOptions& options) {
  TuningExport result;
  std::set<std::string> names;
  for (const auto& layer : tuning_layers(options.cache)) {
    for (const CacheFile& file : layer.files()) {
      const std::string name = file.path.filename().string();
      auto bytes = read_whole_file(file.path);
      if (!bytes) continue;  // collected a moment ago
      const auto record = TuningCache::read_bytes(*bytes, name, file.path.string());
      if (!record) {
        result.damaged += record.error().code == ErrorCode::corrupt ? 1 : 0;
      } else if (is_wanted(options.archs, record->key.device.arch) && names.insert(name).second) {
        result.files.push_back({name, std::move(*bytes)});
      }
    }
  }
  return result;
}

std::vector<TuningRecord> tunings_of(const jit::Bundle& bundle, const std::filesystem::path& file) {
  std::vector<TuningRecord> records;
  for (const jit::BundleFile& each : bundle.files) {
    records.push_back(value_or_throw(TuningCache::read_bytes(
        each.bytes, each.name, fmt::format("{}:{}", file.string(), each.name))));
  }
  return records;
}

jit::ImportResult import_tunings(const std::vector<TuningRecord>& records,
                                 const TuningCache& cache) {
  jit::ImportResult result;
  for (const TuningRecord& record : records) {
    const auto there = cache.find(record.key);
    if (there && (there->complete || !record.complete)) {
      ++result.known;
      continue;
    }
    value_or_throw(cache.publish(record));
    ++result.added;
  }
  return result;
}

}  // namespace ingot
