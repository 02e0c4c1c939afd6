#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/pre_tokenizer.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>

#include "src/text/json_value.hpp"
#include "src/text/unicode_since_14.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 14;
/// Backtracking that a match may cost besides what is proportional to its text, and the memory of
/// the interpreter (used where the system forbids the JIT's executable pages).
constexpr std::uint32_t kMatchLimitBase = 1'000'000;
constexpr std::uint32_t kMatchLimitPerByte = 16;
constexpr std::uint32_t kHeapLimitKib = 64 << 10;

template <class Handle, auto Free>
struct Freed {
  void operator()(Handle* handle) const { Free(handle); }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context, pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Freed<pcre2_compile_context, pcre2_compile_context_free>>;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

/// DeepSeek-V4's: runs of digits, of Chinese and Japanese characters, and what is left.
constexpr std::array<std::string_view, 3> kDeepSeekPatterns = {
    R"re(\p{N}{1,3})re", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Whether a whole character that is no white space begins there. White space beyond ASCII begins
/// with C2, E1, E2 or E3: where such a byte stands, the answer is no.
bool is_dark(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte > 0x20 && byte < 0x7F) || (byte >= 0xC3 && (byte < 0xE1 || byte > 0xE3));
}

/// A pattern for a message: quoted, on one line, not too long.
std::string shown(std::string_view pattern) {
  constexpr std::size_t kLongest = 100;
  if (pattern.size() <= kLongest) return to_python_json(pattern);
  const std::string_view start = pattern.substr(0, kLongest);
  return to_python_json(start.substr(0, valid_utf8_prefix(start))) + "…";
}

/// The same pattern for PCRE2. White space differs: Oniguruma's \s is the property White_Space,
/// PCRE2's also has U+180E. What else the two read differently is refused.
Result<std::string> translate(std::string_view pattern) {
  const auto refuse = [&](std::string_view what) {
    return fail(ErrorCode::unsupported,
                fmt::format("pattern {} uses {}, which is not read alike by every regular "
                            "expression library",
                            shown(pattern), what));
  };
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += "\\p{White_Space}";
      } else if (escaped == 'S') {
        out += "\\P{White_Space}";
      } else if (static_cast<unsigned char>(escaped) < 0x80 && std::isalnum(escaped) != 0 &&
                 std::string_view("pPdDrnt").find(escaped) == std::string_view::npos) {
        return refuse(fmt::format("\\{}", escaped));
      } else {
        out += {'\\', escaped};
      }
      continue;
    }
    if (in_class) {
      if (c == ']') in_class = false;
      if (c == '[') return refuse("a class inside a class");
      if (c == '&' && pattern.substr(i).starts_with("&&")) return refuse("&&");
    } else if (c == '[') {
      in_class = true;
      const std::size_t first = i + (pattern.substr(i).starts_with("[^") ? 2 : 1);
      if (first < pattern.size() && pattern[first] == ']') return refuse("] first in a class");
    } else if (c == '^' || c == '$') {
      return refuse(std::string_view(&c, 1));
    } else if (pattern.substr(i).starts_with("(?") && !pattern.substr(i).starts_with("(?:") &&
               !pattern.substr(i).starts_with("(?!") && !pattern.substr(i).starts_with("(?=") &&
               !pattern.substr(i).starts_with("(?>")) {
      return refuse(pattern.substr(i, 3));
    } else if (c == '(' && pattern.substr(i).starts_with("(*")) {
      return refuse("(*");
    }
    out += c;
  }
  return out;
}

}  // namespace

struct PreTokenizer::Stage {
  std::string pattern;
  Code code;
  bool jit = false;
};

namespace {

/// One text's way through the stages: the match state of each.
template <class Stage>
class Splitter {
 public:
  /// @param text    what is cut
  /// @param matched what the patterns see of it, of the same size
  Splitter(const std::vector<Stage>& stages, std::string_view text, std::string_view matched,
           void (*take)(void*, std::string_view), void* take_context)
      : stages_(stages),
        text_(text),
        matched_(matched),
        context_(pcre2_match_context_create(nullptr)),
        take_(take),
        take_context_(take_context) {
    const std::uint64_t limit =
        kMatchLimitBase + std::uint64_t{kMatchLimitPerByte} * std::uint64_t{text.size()};
    pcre2_set_match_limit(context_.get(),
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    for (const Stage& stage : stages_) {
      data_.emplace_back(pcre2_match_data_create_from_pattern(stage.code.get(), nullptr));
    }
  }

  void run() { split(0, matched_); }

 private:
  struct Range {
    std::size_t begin, end;
  };

  void split(std::size_t stage, std::string_view piece) {
    if (stage == stages_.size()) {
      const auto begin = static_cast<std::size_t>(piece.data() - matched_.data());
      take_(take_context_, text_.substr(begin, piece.size()));
      return;
    }
    std::size_t done = 0;
    while (done < piece.size()) {
      const std::optional<Range> match = find(stage, piece, done);
      if (!match) break;
      if (match->begin > done) split(stage + 1, piece.substr(done, match->begin - done));
      split(stage + 1, piece.substr(match->begin, match->end - match->begin));
      done = match->end;
    }
    if (done < piece.size()) split(stage + 1, piece.substr(done));
  }

  /// The piece is the whole subject: look-ahead sees its end.
  std::optional<Range> find(std::size_t index, std::string_view piece, std::size_t from) {
    const Stage& stage = stages_[index];
    const auto subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    pcre2_match_data* data = data_[index].get();
    const int count = stage.jit ? pcre2_jit_match(stage.code.get(), subject, piece.size(), from, 0,
                                                  data, context_.get())
                                : pcre2_match(stage.code.get(), subject, piece.size(), from,
                                              PCRE2_NO_UTF_CHECK, data, context_.get());
    if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (count < 0) {
      throw EngineError(ErrorCode::unsupported,
                        fmt::format("splitting {} bytes of text: pattern {} of the tokenizer "
                                    "gave up: {}",
                                    piece.size(), shown(stage.pattern), pcre2_message(count)));
    }
    const std::size_t* ends = pcre2_get_ovector_pointer(data);
    return Range{ends[0], ends[1]};
  }

  const std::vector<Stage>& stages_;
  std::string_view text_, matched_;
  MatchContext context_;
  std::vector<MatchData> data_;
  void (*take_)(void*, std::string_view);
  void* take_context_;
};

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Stage> stages) : stages_(std::move(stages)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::compile(const std::vector<std::string>& patterns) {
  if (patterns.size() > kMaxStages) {
    return fail(ErrorCode::unsupported, fmt::format("{} split stages, more than the {} supported",
                                                    patterns.size(), kMaxStages));
  }
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  std::vector<Stage> stages;
  for (const std::string& pattern : patterns) {
    if (pattern.size() > kMaxPatternBytes) {
      return fail(ErrorCode::unsupported, fmt::format("a pattern of {} bytes, more than the {} "
                                                      "supported",
                                                      pattern.size(), kMaxPatternBytes));
    }
    const Result<std::string> translated = translate(pattern);
    if (!translated) return tl::unexpected(translated.error());
    int error = 0;
    std::size_t place = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                            context.get()));
    if (!code) {
      return fail(ErrorCode::corrupt, fmt::format("pattern {} is no regular expression: {}",
                                                  shown(pattern), pcre2_message(error)));
    }
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
      return fail(ErrorCode::unsupported,
                  fmt::format("pattern {} matches the empty text", shown(pattern)));
    }
    const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
    stages.push_back({pattern, std::move(code), jit});
  }
  PreTokenizer made(std::move(stages));
  made.known_ = std::equal(patterns.begin(), patterns.end(), kDeepSeekPatterns.begin(),
                           kDeepSeekPatterns.end());
  return made;
}

// Of DeepSeek-V4's patterns none looks behind, so that a place where a match always ends is one
// from which the rest is matched as if the text began there. Two such places:
// - between an ASCII letter and an ASCII character that is none: each letter is in a match, and no
//   alternative has such a character behind a letter;
// - between a LF and what is no white space: LF is in a match of " ?[\p{P}\p{S}]+[\r\n]*" or
//   "\s*[\r\n]+", which go on with CR, LF and white space alone. The look-ahead of "\s+(?!\S)" is
//   not asked there, as white space that ends with LF is the former's.
std::size_t PreTokenizer::split_point(std::string_view text, bool after_lines) const {
  if (!known_) return 0;
  for (std::size_t at = text.size(); at-- > 1;) {
    const char before = text[at - 1], after = text[at];
    if (before == '\n' && is_dark(after)) return at;
    const bool ascii = static_cast<unsigned char>(after) < 0x80;
    if (!after_lines && is_ascii_letter(before) && ascii && !is_ascii_letter(after)) return at;
  }
  return 0;
}

void PreTokenizer::split(std::string_view text, void (*take)(void*, std::string_view),
                         void* context) const {
  std::string storage;
  const std::string_view matched = with_unicode_14_categories(text, storage);
  Splitter<Stage>(stages_, text, matched, take, context).run();
}

}  // namespace ingot
