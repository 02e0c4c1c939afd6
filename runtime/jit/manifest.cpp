#include "runtime/jit/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/hash.hpp"
#include "runtime/jit/compile_job.hpp"

namespace ingot::jit {
namespace {

constexpr std::size_t kCompilerKeyDigits = 16;

std::string lines_before_compiler(const Manifest& m) {
  return fmt::format("schema {}\nfamily {}\narch {}\n", m.schema, m.family, m.arch);
}

std::string compiler_lines(const Manifest& m) {
  return fmt::format("compiler {}\ncompiler-build {}\n", m.compiler.version, m.compiler.build);
}

std::string lines_after_compiler(const Manifest& m) {
  std::string text;
  for (const std::string& option : m.options)
    text += fmt::format("option {}\n", option);
  text += fmt::format("template {}\n", m.source_digest);
  for (const ParamValue& param : m.params) {
    text += fmt::format("param {} {} {}\n", param.type, param.name, param.value);
  }
  return text;
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

bool parse_param(std::string_view words, Manifest& manifest) {
  const auto [type, rest] = split(words);
  const auto [name, value] = split(rest);
  ParamValue param{std::string(type), std::string(name), 0};
  if (name.empty() || !parse_number(value, param.value)) return false;
  manifest.params.push_back(std::move(param));
  return true;
}

}  // namespace

std::string Manifest::text() const {
  return lines_before_compiler(*this) + compiler_lines(*this) + lines_after_compiler(*this);
}

Result<Manifest> Manifest::parse(std::string_view text) {
  Manifest manifest;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto [field, value] = split(line);
    bool known = true;
    if (field == "schema") {
      known = parse_number(value, manifest.schema);
    } else if (field == "family") {
      manifest.family = value;
    } else if (field == "arch") {
      manifest.arch = value;
    } else if (field == "compiler") {
      manifest.compiler.version = value;
    } else if (field == "compiler-build") {
      manifest.compiler.build = value;
    } else if (field == "option") {
      manifest.options.emplace_back(value);
    } else if (field == "template") {
      manifest.source_digest = value;
    } else if (field == "param") {
      known = parse_param(value, manifest);
    } else {
      known = false;
    }
    if (!known) return fail(ErrorCode::corrupt, fmt::format("a manifest holds \"{}\"", line));
  }
  // Both become part of a file's name.
  const auto is_plain = [](const std::string& name) {
    return !name.empty() &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  };
  if (!is_plain(manifest.family) || !is_plain(manifest.arch)) {
    return fail(ErrorCode::corrupt,
                fmt::format("a manifest's family \"{}\" or architecture \"{}\" is no plain name",
                            manifest.family, manifest.arch));
  }
  // Fields that are doubled, missing or out of order do not print as they were read.
  if (manifest.text() != text) {
    return fail(ErrorCode::corrupt, "a manifest's fields are not in their order");
  }
  return manifest;
}

std::string Manifest::kernel_key() const {
  return digest_of(lines_before_compiler(*this) + lines_after_compiler(*this)).hex();
}

std::string Manifest::compiler_key() const {
  return digest_of(compiler_lines(*this)).hex().substr(0, kCompilerKeyDigits);
}

Manifest manifest_of(const SourceBundle& bundle, const Variant& variant, const std::string& arch,
                     const CompilerIdentity& compiler) {
  return {.family = variant.family,
          .arch = arch,
          .compiler = compiler,
          .options = canonical_options(),
          .source_digest = bundle.digest.hex(),
          .params = variant.params};
}

std::vector<std::string> differences(const Manifest& wanted, const Manifest& entry) {
  std::vector<std::string> found;
  const auto compare = [&](std::string_view field, const auto& want, const auto& have) {
    if (want != have) {
      found.push_back(fmt::format("{}: wanted {}, the entry has {}", field, want, have));
    }
  };
  compare("schema", wanted.schema, entry.schema);
  compare("family", wanted.family, entry.family);
  compare("arch", wanted.arch, entry.arch);
  compare("compiler (NVRTC version)", wanted.compiler.version, entry.compiler.version);
  compare("compiler-build (NVRTC build)", wanted.compiler.build, entry.compiler.build);
  compare("options", fmt::format("{}", fmt::join(wanted.options, " ")),
          fmt::format("{}", fmt::join(entry.options, " ")));
  compare("template (with its includes)", wanted.source_digest, entry.source_digest);
  const auto value_in = [](const Manifest& manifest, const std::string& name) {
    for (const ParamValue& param : manifest.params) {
      if (param.name != name) continue;
      return param.type == "bool" ? fmt::format("{}", param.value != 0)
                                  : fmt::format("{}", param.value);
    }
    return std::string("none");
  };
  std::vector<std::string> names;
  for (const Manifest* manifest : {&wanted, &entry}) {
    for (const ParamValue& param : manifest->params) {
      if (std::find(names.begin(), names.end(), param.name) == names.end()) {
        names.push_back(param.name);
      }
    }
  }
  for (const std::string& name : names) {
    compare("param " + name, value_in(wanted, name), value_in(entry, name));
  }
  return found;
}

}  // namespace ingot::jit
