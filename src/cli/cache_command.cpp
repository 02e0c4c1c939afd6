#include "src/cli/cache_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "kernel_templates/family.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/bundle.hpp"
#include "src/cli/cache_tuning.hpp"
#include "src/cli/json_line.hpp"
#include "src/cli/write_file.hpp"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

bool is_wanted(const std::vector<std::string>& archs, const std::string& arch) {
  return archs.empty() || std::find(archs.begin(), archs.end(), arch) != archs.end();
}

std::string params_text(const jit::Manifest& manifest) {
  std::string text;
  for (const jit::ParamValue& param : manifest.params) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", param.name, param.value);
  }
  return text;
}

/// The folders that are written.
jit::CubinCache first_layer(const CacheOptions& options) {
  auto layers = kernel_layers(options.cache);
  if (layers.empty()) {
    throw EngineError(ErrorCode::invalid_argument,
                      "there is no kernel cache folder: name one with --cache-dir (neither "
                      "XDG_CACHE_HOME nor HOME is set)");
  }
  return std::move(layers.front());
}

TuningCache first_tuning_layer(const CacheOptions& options) {
  return TuningCache(first_layer(options).directory().parent_path() / "tuning");
}

Json entry_json(const jit::CacheEntry& entry, const jit::CubinCache::File& file) {
  const jit::Manifest& manifest = entry.manifest;
  Json line;
  line["kind"] = "kernel";
  line["family"] = manifest.family;
  line["arch"] = manifest.arch;
  line["params"] = Json::object();
  for (const auto& param : manifest.params)
    line["params"][param.name] = param.value;
  line["nvrtc"] = manifest.compiler.version;
  line["nvrtc_build"] = manifest.compiler.build;
  line["key"] = manifest.kernel_key();
  if (entry.is_barred()) {
    line["barred"] = entry.barred;
  } else {
    line["registers"] = entry.kernel.resources.registers;
    line["spill_bytes"] = entry.kernel.resources.spill_store_bytes;
    line["static_smem_bytes"] = entry.kernel.resources.smem_bytes;
    line["compile_seconds"] = entry.kernel.seconds;
    line["cubin_bytes"] = entry.kernel.cubin.size();
  }
  line["file"] = file.path.string();
  line["bytes"] = file.bytes;
  return line;
}

int list(const CacheOptions& options, std::FILE* out) {
  if (options.table) {
    print_choice_tables(options, out);
    return 0;
  }
  int kernels = 0;
  int bars = 0;
  int damaged = 0;
  std::uint64_t bytes = 0;
  for (const auto& layer : kernel_layers(options.cache)) {
    for (const auto& file : layer.files()) {
      const auto entry = jit::CubinCache::read(file.path);
      if (!entry) {
        ++damaged;
        log::warn("{}", entry.error().message);
        continue;
      }
      if (!is_wanted(options.archs, entry->manifest.arch)) continue;
      bytes += file.bytes;
      ++(entry->is_barred() ? bars : kernels);
      if (options.json) {
        fmt::print(out, "{}\n", json_line(entry_json(*entry, file)));
      } else if (entry->is_barred()) {
        fmt::print(out, "{:<20} {:<8} {}  barred: {}\n", printable(entry->manifest.family),
                   printable(entry->manifest.arch), printable(params_text(entry->manifest)),
                   printable(entry->barred));
      } else {
        fmt::print(out, "{:<20} {:<8} {}  {} registers, {} bytes, {:.2f} s, NVRTC {}\n",
                   printable(entry->manifest.family), printable(entry->manifest.arch),
                   printable(params_text(entry->manifest)), entry->kernel.resources.registers,
                   file.bytes, entry->kernel.seconds, printable(entry->manifest.compiler.version));
      }
    }
  }
  const TuningList tunings = list_tunings(options, out);
  if (!options.json) {
    fmt::print(out, "{} kernels, {} barred, {} tuning choices, {} damaged, {:.1f} MiB\n", kernels,
               bars, tunings.records, damaged + tunings.damaged,
               static_cast<double>(bytes + tunings.bytes) / (1 << 20));
  }
  return 0;
}

int verify(const CacheOptions& options, std::FILE* out) {
  int good = 0;
  Json damaged = Json::array();
  for (const auto& layer : kernel_layers(options.cache)) {
    for (const auto& file : layer.files()) {
      if (const auto entry = jit::CubinCache::read(file.path)) {
        ++good;
      } else {
        damaged.push_back(entry.error().message);
        if (!options.json) fmt::print(out, "{}\n", printable(entry.error().message));
      }
    }
  }
  for (const auto& layer : tuning_layers(options.cache)) {
    for (const CacheFile& file : layer.files()) {
      if (const auto record = TuningCache::read(file.path)) {
        ++good;
      } else {
        damaged.push_back(record.error().message);
        if (!options.json) fmt::print(out, "{}\n", printable(record.error().message));
      }
    }
  }
  if (options.json) {
    fmt::print(out, "{}\n", json_line(Json{{"good", good}, {"damaged", damaged}}));
  } else {
    fmt::print(out, "{} entries are whole, {} damaged{}\n", good, damaged.size(),
               damaged.empty() ? "" : ": `ingot cache gc` removes them, a look-up rebuilds them");
  }
  return damaged.empty() ? 0 : 1;
}

jit::Variant variant_of(const CacheOptions& options) {
  std::string stems;
  for (const kernels::Family& family : kernels::families()) {
    stems += (stems.empty() ? "" : ", ") + family.stem;
    if (family.stem != options.family) continue;
    jit::Variant variant{family.stem, family.defaults};
    for (const std::string& word : options.params) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const auto param =
          std::find_if(variant.params.begin(), variant.params.end(),
                       [&](const jit::ParamValue& value) { return value.name == name; });
      const char* end = word.data() + word.size();
      const char* begin = equals == std::string::npos ? end : word.data() + equals + 1;
      if (param == variant.params.end() || begin == end ||
          std::from_chars(begin, end, param->value).ptr != end) {
        std::string names;
        for (const auto& value : variant.params)
          names += " " + value.name;
        throw EngineError(ErrorCode::invalid_argument,
                          fmt::format("\"{}\" is no NAME=VALUE of {}; its parameters:{}", word,
                                      family.stem, names));
      }
    }
    return variant;
  }
  throw EngineError(
      ErrorCode::invalid_argument,
      fmt::format("there is no kernel family \"{}\"; families: {}", options.family, stems));
}

int explain(const CacheOptions& options, std::FILE* out) {
  if (options.archs.empty()) {
    throw EngineError(ErrorCode::invalid_argument,
                      "explain needs an architecture: give --arch sm_NN");
  }
  const auto store = value_or_throw(open_kernel_store(options.cache, 1));
  const jit::KernelRequest request{.variant = variant_of(options),
                                   .arch = value_or_throw(jit::parse_arch(options.archs.front()))};
  auto lines = value_or_throw(store->explain(request));
  for (std::string& line : explain_tunings(options, *store, request))
    lines.push_back(std::move(line));
  if (options.json) {
    fmt::print(out, "{}\n",
               json_line(Json{{"kernel", jit::describe(request.variant)},
                              {"arch", request.arch},
                              {"manifest", value_or_throw(store->manifest(request)).text()},
                              {"lines", lines}}));
  } else {
    fmt::print(out, "{} for {}\n", jit::describe(request.variant), request.arch);
    for (const std::string& line : lines)
      fmt::print(out, "{}\n", printable(line));
  }
  return 0;
}

int collect(const CacheOptions& options, std::FILE* out) {
  // Records are small, and each took seconds of a card: they go last.
  const auto records = first_tuning_layer(options).collect(
      {.most_bytes = options.most_bytes, .most_age = options.most_age});
  auto result = first_layer(options).collect(
      {.most_bytes = options.most_bytes - records.kept_bytes, .most_age = options.most_age});
  result.removed += records.removed;
  result.removed_bytes += records.removed_bytes;
  result.damaged += records.damaged;
  result.temporaries += records.temporaries;
  result.kept += records.kept;
  result.kept_bytes += records.kept_bytes;
  if (options.json) {
    fmt::print(out, "{}\n",
               json_line(Json{{"removed", result.removed},
                              {"removed_bytes", result.removed_bytes},
                              {"damaged", result.damaged},
                              {"temporaries", result.temporaries},
                              {"kept", result.kept},
                              {"kept_bytes", result.kept_bytes}}));
  } else {
    fmt::print(out,
               "removed {} entries ({:.1f} MiB; {} of them damaged) and {} leftovers; {} entries "
               "stay ({:.1f} MiB)\n",
               result.removed, static_cast<double>(result.removed_bytes) / (1 << 20),
               result.damaged, result.temporaries, result.kept,
               static_cast<double>(result.kept_bytes) / (1 << 20));
  }
  return 0;
}

int export_to(const CacheOptions& options, std::FILE* out) {
  value_or_throw(check_new_file(options.file, options.force));
  TuningExport tunings = export_tunings(options);
  const auto result = value_or_throw(jit::export_bundle(kernel_layers(options.cache), options.archs,
                                                        options.file, std::move(tunings.files)));
  const int damaged = result.damaged + tunings.damaged;
  if (damaged > 0) log::warn("{} damaged entries were left out", damaged);
  if (options.json) {
    fmt::print(out, "{}\n",
               json_line(Json{{"kernels", result.kernels},
                              {"barred", result.bars},
                              {"tuning", result.files},
                              {"damaged", damaged},
                              {"bytes", result.bundle_bytes},
                              {"file", options.file.string()}}));
  } else {
    fmt::print(out,
               "exported {} kernels, {} barred variants and {} tuning choices to {} ({:.1f} MiB)\n",
               result.kernels, result.bars, result.files, printable(options.file.string()),
               static_cast<double>(result.bundle_bytes) / (1 << 20));
  }
  return 0;
}

int import_from(const CacheOptions& options, std::FILE* out) {
  const jit::CubinCache cache = first_layer(options);
  const jit::Bundle bundle = value_or_throw(jit::read_bundle(options.file));
  // All of the bundle is checked before anything of it is published.
  const auto records = tunings_of(bundle, options.file);
  auto result = value_or_throw(jit::import_kernels(bundle, cache));
  const jit::ImportResult tunings = import_tunings(records, first_tuning_layer(options));
  if (options.json) {
    fmt::print(out, "{}\n",
               json_line(Json{{"added", result.added},
                              {"known", result.known},
                              {"tuning_added", tunings.added},
                              {"tuning_known", tunings.known}}));
  } else {
    fmt::print(out, "imported {} entries and {} tuning choices into {}; {} and {} were there\n",
               result.added, tunings.added, printable(cache.directory().parent_path().string()),
               result.known, tunings.known);
  }
  return 0;
}

}  // namespace

int run_cache(const CacheOptions& options, std::FILE* out) {
  switch (options.action) {
    case CacheOptions::Action::list:
      return list(options, out);
    case CacheOptions::Action::verify:
      return verify(options, out);
    case CacheOptions::Action::explain:
      return explain(options, out);
    case CacheOptions::Action::gc:
      return collect(options, out);
    case CacheOptions::Action::export_bundle:
      return export_to(options, out);
    case CacheOptions::Action::import_bundle:
      return import_from(options, out);
  }
  return 1;
}

}  // namespace ingot
