#include "src/cli/settings.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr double kMaxInteger = 1e15;  // exact in a double; far beyond any use

const std::vector<SettingSpec>& specs() {
  using G = SettingGroup;
  using S = Settings;
  static const std::vector<SettingSpec> list{
      {"model",
       "--model",
       G::model,
       &S::model,
       0,
       0,
       {},
       "folder of the checkpoint; without it the built-in model"},
      {"device",
       "--device",
       G::engine,
       &S::device,
       0,
       0,
       {"auto", "cuda", "cpu"},
       "where the model runs; auto says which it took and why"},
      {"engine.tp", "--tp", G::engine, &S::tp_size, 1, 64, {}, "tensor parallel ranks"},
      {"engine.devices",
       "--devices",
       G::engine,
       &S::devices,
       0,
       0,
       {},
       "GPUs of the ranks, in order: \"0,2\"; without it the first ones"},
      {"engine.threads",
       "--threads",
       G::engine,
       &S::threads,
       0,
       1024,
       {},
       "CPU threads; 0 is one for each CPU"},
      {"engine.context",
       "--context",
       G::engine,
       &S::context,
       16,
       1 << 24,
       {},
       "most tokens of one sequence, prompt and answer; never beyond the model's own limit"},
      {"engine.prefill_chunk",
       "--prefill-chunk",
       G::engine,
       &S::prefill_chunk,
       1,
       65536,
       {},
       "prompt tokens of one sequence in one step"},
      {"engine.max_batch",
       "--max-batch",
       G::engine,
       &S::max_batch,
       1,
       4096,
       {},
       "sequences that run at once"},
      {"cache.dir",
       "--cache-dir",
       G::cache,
       &S::cache_dir,
       0,
       0,
       {},
       "folder of the kernel and tuning caches"},
      {"cache.dirs",
       "--cache-dirs",
       G::cache,
       &S::cache_dirs,
       0,
       0,
       {},
       "several such folders instead, in order of look-up (repeat the flag): the first is written, "
       "the others are only read"},
      {"cache.frozen",
       "--frozen",
       G::cache,
       &S::frozen,
       0,
       0,
       {},
       "a kernel that is not in the cache is an error, never compiled; nothing is tuned"},
      {"tuning.budget",
       "--tuning-budget",
       G::engine,
       &S::tuning_budget,
       0,
       86400,
       {},
       "seconds that the first run on a GPU may spend on choosing kernels; 0 takes the defaults"},
      {"kernels.pin",
       "--pin",
       G::engine,
       &S::pins,
       0,
       0,
       {},
       "FAMILY.PARAM=VALUE: force a kernel's parameter, and its family, wherever the value is "
       "legal; may be repeated"},
      {"kernels.disable",
       "--disable",
       G::engine,
       &S::disabled,
       0,
       0,
       {},
       "leave a kernel family out; may be repeated"},
      {"engine.deterministic",
       "--deterministic",
       G::engine,
       &S::deterministic,
       0,
       0,
       {},
       "the same kernels for every step: an answer does not depend on what runs beside it, nor on "
       "how it was scheduled"},
      {"sampling.temperature",
       "--temperature",
       G::sampling,
       &S::temperature,
       0,
       2,
       {},
       "randomness; 0 always takes the likeliest token"},
      {"sampling.top_p",
       "--top-p",
       G::sampling,
       &S::top_p,
       0,
       1,
       {},
       "keep the likeliest tokens that together reach this probability"},
      {"sampling.top_k",
       "--top-k",
       G::sampling,
       &S::top_k,
       0,
       1 << 24,
       {},
       "keep this many of the likeliest tokens; 0 keeps all"},
      {"sampling.min_p",
       "--min-p",
       G::sampling,
       &S::min_p,
       0,
       1,
       {},
       "drop tokens less likely than this share of the likeliest"},
      {"sampling.seed",
       "--seed",
       G::sampling,
       &S::seed,
       0,
       kMaxInteger,
       {},
       "same seed, same text; unset: chat draws one, generate derives one from each line"},
      {"sampling.repetition_penalty",
       "--repetition-penalty",
       G::sampling,
       &S::repetition_penalty,
       0.01,
       10,
       {},
       "divides the logits of tokens seen in prompt or answer"},
      {"sampling.presence_penalty",
       "--presence-penalty",
       G::sampling,
       &S::presence_penalty,
       -2,
       2,
       {},
       "subtracted from the logits of tokens in the answer"},
      {"sampling.frequency_penalty",
       "--frequency-penalty",
       G::sampling,
       &S::frequency_penalty,
       -2,
       2,
       {},
       "subtracted once for each time a token is in the answer"},
      {"sampling.max_tokens",
       "--max-tokens",
       G::sampling,
       &S::max_tokens,
       1,
       kMaxInteger,
       {},
       "longest answer, thinking included; unset: until the context is full"},
      {"sampling.stop",
       "--stop",
       G::sampling,
       &S::stop,
       0,
       0,
       {},
       "text that ends the answer; may be repeated"},
      {"chat.thinking",
       "--thinking",
       G::chat,
       &S::thinking,
       0,
       0,
       {"none", "low", "high", "max"},
       "how much the model thinks before it answers"},
      {"chat.thinking_budget",
       "--thinking-budget",
       G::chat,
       &S::thinking_budget,
       0,
       kMaxInteger,
       {},
       "thinking tokens after which the answer is forced to begin"},
      {"chat.keep_thinking",
       "--keep-thinking",
       G::chat,
       &S::keep_thinking,
       0,
       0,
       {},
       "keep the thinking of earlier turns in the prompt"},
      {"chat.system", "--system", G::chat, &S::system, 0, 0, {}, "system message"},
  };
  return list;
}

Unexpected wrong(const SettingSpec& spec, std::string_view given) {
  const auto integer_range = [&](std::string_view kind) {
    return fmt::format("must be {} from {} to {}, not {}", kind,
                       static_cast<std::int64_t>(spec.low), static_cast<std::int64_t>(spec.high),
                       given);
  };
  const std::string message = std::visit(
      [&]<class T>(T Settings::*) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return fmt::format("must be true or false, not {}", given);
        } else if constexpr (std::is_same_v<T, double>) {
          return fmt::format("must be a number from {} to {}, not {}", spec.low, spec.high, given);
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (spec.choices.empty())
            return fmt::format("must be a string without NUL, not {}", given);
          return fmt::format("must be one of {}, not {}", fmt::join(spec.choices, ", "), given);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return fmt::format("must be a list of strings, not {}", given);
        } else {
          return integer_range("a whole number");
        }
      },
      spec.member);
  return fail(ErrorCode::invalid_argument, message);
}

std::string in_double_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;  // of outside text in a message
  std::string mended;
  text = mend_utf8(text, mended);
  const std::string_view begin = cut_utf8(text, kLongest);
  std::string out = "\"";
  for (const char c : begin) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + (begin.size() < text.size() ? "…\"" : "\"");
}

std::string describe(const SettingValue& value) {
  return std::visit(
      []<class T>(const T& given) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
          return in_double_quotes(given);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return "a list";
        } else {
          return fmt::format("{}", given);
        }
      },
      value);
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const SettingSpec> setting_specs() {
  return specs();
}

const SettingSpec* find_setting(std::string_view key) {
  const auto found = std::find_if(specs().begin(), specs().end(),
                                  [&](const SettingSpec& spec) { return spec.key == key; });
  return found == specs().end() ? nullptr : &*found;
}

Result<void> assign(Settings& settings, const SettingSpec& spec, const SettingValue& value) {
  const auto in_range = [&](double number) { return number >= spec.low && number <= spec.high; };
  return std::visit(
      [&]<class T>(T Settings::*member) -> Result<void> {
        if constexpr (std::is_same_v<T, std::int64_t> ||
                      std::is_same_v<T, std::optional<std::int64_t>>) {
          const auto* given = std::get_if<std::int64_t>(&value);
          if (given == nullptr || !in_range(static_cast<double>(*given))) {
            return wrong(spec, describe(value));
          }
          settings.*member = *given;
        } else if constexpr (std::is_same_v<T, double>) {
          double number = 0;
          if (const auto* whole = std::get_if<std::int64_t>(&value)) {
            number = static_cast<double>(*whole);
          } else if (const auto* given = std::get_if<double>(&value)) {
            number = *given;
          } else {
            return wrong(spec, describe(value));
          }
          if (!in_range(number)) return wrong(spec, describe(value));
          settings.*member = number;
        } else {
          const auto* given = std::get_if<T>(&value);
          if (given == nullptr) return wrong(spec, describe(value));
          if constexpr (std::is_same_v<T, std::string>) {
            // No name of the system's and no flag can hold it: it would end there.
            if (given->find('\0') != std::string::npos) return wrong(spec, describe(value));
            if (!spec.choices.empty() &&
                std::find(spec.choices.begin(), spec.choices.end(), *given) == spec.choices.end()) {
              return wrong(spec, describe(value));
            }
          }
          settings.*member = *given;
        }
        return {};
      },
      spec.member);
}

Result<void> assign_text(Settings& settings, const SettingSpec& spec,
                         std::span<const std::string> texts) {
  const std::string text = texts.empty() ? std::string() : texts.back();
  return std::visit(
      [&]<class T>(T Settings::*) -> Result<void> {
        if constexpr (std::is_same_v<T, bool>) {
          return assign(settings, spec, text != "false");
        } else if constexpr (std::is_same_v<T, double>) {
          const auto number = to_number(text);
          return number ? assign(settings, spec, *number) : wrong(spec, in_double_quotes(text));
        } else if constexpr (std::is_same_v<T, std::string>) {
          return assign(settings, spec, text);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return assign(settings, spec, std::vector<std::string>(texts.begin(), texts.end()));
        } else {
          const auto number = to_integer(text);
          return number ? assign(settings, spec, *number) : wrong(spec, in_double_quotes(text));
        }
      },
      spec.member);
}

std::string show(const Settings& settings, const SettingSpec& spec) {
  return std::visit(
      [&]<class T>(T Settings::*member) -> std::string {
        const T& value = settings.*member;
        if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
          return value ? fmt::format("{}", *value) : "unset";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return in_double_quotes(value);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          std::vector<std::string> parts;
          for (const std::string& part : value)
            parts.push_back(in_double_quotes(part));
          return fmt::format("[{}]", fmt::join(parts, ", "));
        } else {
          return fmt::format("{}", value);
        }
      },
      spec.member);
}

void LayeredSettings::remember(const SettingSpec& spec, std::string origin) {
  auto& layers = layers_[std::string(spec.key)];
  layers.insert(layers.begin(), Layer{std::move(origin), show(values_, spec)});
}

Result<void> LayeredSettings::apply(const SettingSpec& spec, const SettingValue& value,
                                    std::string origin) {
  if (auto assigned = assign(values_, spec, value); !assigned) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{}: {} {}", origin, spec.key, assigned.error().message));
  }
  remember(spec, std::move(origin));
  return {};
}

Result<void> LayeredSettings::apply_text(const SettingSpec& spec,
                                         std::span<const std::string> texts, std::string origin) {
  if (auto assigned = assign_text(values_, spec, texts); !assigned) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} {}", origin, assigned.error().message));
  }
  remember(spec, std::move(origin));
  return {};
}

std::vector<LayeredSettings::Layer> LayeredSettings::layers(std::string_view key) const {
  const auto found = layers_.find(key);
  return found == layers_.end() ? std::vector<Layer>{} : found->second;
}

}  // namespace ingot
