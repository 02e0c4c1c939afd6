#include "tuner/tuning_key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/hash.hpp"

namespace ingot {
namespace {

constexpr std::size_t kCompilerKeyDigits = 16;

std::string lines_before_compiler(const TuningKey& key) {
  std::string text = fmt::format("schema {}\n", key.schema);
  for (const auto& family : key.families)
    text += fmt::format("family {} {}\n", family.stem, family.source_digest);
  for (const ProblemField& field : key.problem)
    text += fmt::format("problem {} {}\n", field.name, field.value);
  text +=
      fmt::format("tp {}\ndevice {}\narch {}\nmultiprocessors {}\ndriver {}\n", key.tp_size,
                  key.device.name, key.device.arch, key.device.sm_count, key.device.driver_branch);
  return text;
}

std::string compiler_lines(const TuningKey& key) {
  return fmt::format("compiler {}\ncompiler-build {}\n", key.compiler.version, key.compiler.build);
}

std::string lines_after_compiler(const TuningKey& key) {
  return fmt::format("space {}\npolicy {}\n", key.space_digest, key.policy);
}

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

/// Splits at the first space.
std::pair<std::string_view, std::string_view> split(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return {line, {}};
  return {line.substr(0, space), line.substr(space + 1)};
}

/// Takes over one field; false for what is none.
bool parse_line(std::string_view line, TuningKey& key) {
  const auto [field, value] = split(line);
  const auto [first, second] = split(value);
  if (field == "schema") return parse_number(value, key.schema);
  if (field == "tp") return parse_number(value, key.tp_size);
  if (field == "multiprocessors") return parse_number(value, key.device.sm_count);
  if (field == "family") {
    key.families.push_back({std::string(first), std::string(second)});
    return true;
  }
  if (field == "problem") {
    key.problem.push_back({std::string(first), 0});
    return parse_number(second, key.problem.back().value);
  }
  std::string* text = field == "device"           ? &key.device.name
                      : field == "arch"           ? &key.device.arch
                      : field == "driver"         ? &key.device.driver_branch
                      : field == "compiler"       ? &key.compiler.version
                      : field == "compiler-build" ? &key.compiler.build
                      : field == "space"          ? &key.space_digest
                      : field == "policy"         ? &key.policy
                                                  : nullptr;
  if (text == nullptr) return false;
  *text = value;
  return true;
}

bool is_plain(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

}  // namespace

std::string TuningKey::text() const {
  return lines_before_compiler(*this) + compiler_lines(*this) + lines_after_compiler(*this);
}

Result<TuningKey> TuningKey::parse(std::string_view text) {
  TuningKey key;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!parse_line(line, key)) {
      return fail(ErrorCode::corrupt, fmt::format("a tuning key holds \"{}\"", line));
    }
  }
  // The first family becomes part of a file's name.
  const bool plain = std::all_of(key.families.begin(), key.families.end(),
                                 [](const Family& family) { return is_plain(family.stem); });
  if (key.families.empty() || !plain || !is_plain(key.device.arch)) {
    return fail(ErrorCode::corrupt,
                "a tuning key's families or its architecture are no plain names");
  }
  // Fields that are doubled, missing or out of order do not print as they were read.
  if (key.text() != text) {
    return fail(ErrorCode::corrupt, "a tuning key's fields are not in their order");
  }
  return key;
}

std::string TuningKey::key() const {
  return digest_of(lines_before_compiler(*this) + lines_after_compiler(*this)).hex();
}

std::string TuningKey::compiler_key() const {
  return digest_of(compiler_lines(*this)).hex().substr(0, kCompilerKeyDigits);
}

std::string TuningKey::title() const {
  std::vector<std::string_view> stems;
  for (const Family& family : families)
    stems.push_back(family.stem);
  return fmt::format("{} {} on {}, TP {}", fmt::join(stems, "+"), describe(problem), device.name,
                     tp_size);
}

Result<TuningKey> key_of(const TuningRequest& request, const TuningDevice& device, int tp_size,
                         const std::string& policy, const jit::KernelStore& kernels) {
  if (request.candidates.empty()) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("a tuning key for {}: it has no candidates", describe(request.problem)));
  }
  TuningKey key{.problem = request.problem,
                .tp_size = tp_size,
                .device = device,
                .space_digest = request.space_digest(),
                .policy = policy};
  for (const std::string& stem : request.families()) {
    const auto first =
        std::find_if(request.candidates.begin(), request.candidates.end(),
                     [&](const jit::Variant& candidate) { return candidate.family == stem; });
    const auto manifest = kernels.manifest({.variant = *first, .arch = device.arch});
    if (!manifest) return tl::unexpected(manifest.error());
    key.families.push_back({stem, manifest->source_digest});
    key.compiler = manifest->compiler;
  }
  return key;
}

std::vector<std::string> differences(const TuningKey& wanted, const TuningKey& record) {
  std::vector<std::string> found;
  const auto compare = [&](std::string_view field, const auto& want, const auto& have) {
    if (want != have) {
      found.push_back(fmt::format("{}: wanted {}, the record has {}", field, want, have));
    }
  };
  const auto stems = [](const TuningKey& key) {
    std::string text;
    for (const auto& family : key.families)
      text += (text.empty() ? "" : "+") + family.stem;
    return text;
  };
  compare("schema", wanted.schema, record.schema);
  compare("families", stems(wanted), stems(record));
  for (const auto& want : wanted.families) {
    for (const auto& have : record.families) {
      if (want.stem == have.stem) {
        compare("template of " + want.stem, want.source_digest, have.source_digest);
      }
    }
  }
  compare("problem", describe(wanted.problem), describe(record.problem));
  compare("TP size", wanted.tp_size, record.tp_size);
  compare("device", wanted.device.name, record.device.name);
  compare("arch", wanted.device.arch, record.device.arch);
  compare("multiprocessors", wanted.device.sm_count, record.device.sm_count);
  compare("driver", wanted.device.driver_branch, record.device.driver_branch);
  compare("compiler (NVRTC version)", wanted.compiler.version, record.compiler.version);
  compare("compiler-build (NVRTC build)", wanted.compiler.build, record.compiler.build);
  compare("space (candidates and rules)", wanted.space_digest, record.space_digest);
  compare("policy (how it is measured)", wanted.policy, record.policy);
  return found;
}

}  // namespace ingot
