#include "tests/support/small_tokenizer.hpp"

#include <fmt/core.h>

#include <stdexcept>

#include "src/text/control_tokens.hpp"
#include "src/text/json_value.hpp"

namespace ingot::test {
namespace {

// The splits of the real file.
constexpr std::string_view kPreTokenizer = R"json({"type": "Sequence", "pretokenizers": [
{"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
{"type": "Split", "pattern": {"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "behavior": "Isolated", "invert": false},
{"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false},
{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})json";

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// GPT-2's byte alphabet: printable Latin-1 stands for itself, the others follow from U+0100.
std::string byte_letter(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  if (printable(byte)) return utf8(byte);
  unsigned next = 0x100;
  for (unsigned b = 0; b < byte; ++b)
    next += !printable(b);
  return utf8(next);
}

}  // namespace

std::string small_tokenizer_json() {
  int id = 2;
  std::string vocab;
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocab +=
        fmt::format("{}{}: {}", byte == 0 ? "" : ", ", to_python_json(byte_letter(byte)), id++);
  }
  vocab += fmt::format(", \"th\": {}, \"the\": {}", id, id + 1);
  id += 2;
  std::string added;
  for (const std::string_view token : control::kAll) {
    const int own = token == control::kBos ? 0 : token == control::kEos ? 1 : id++;
    added += fmt::format(
        "{}{{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": "
        "false, \"normalized\": false, \"special\": true}}",
        added.empty() ? "" : ", ", own, to_python_json(token));
  }
  return fmt::format(
      "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{}], "
      "\"normalizer\": {{\"type\": \"Sequence\", \"normalizers\": []}}, \"pre_tokenizer\": {}, "
      "\"post_processor\": null, \"decoder\": {{\"type\": \"ByteLevel\", \"add_prefix_space\": "
      "true, \"trim_offsets\": true, \"use_regex\": true}}, \"model\": {{\"type\": \"BPE\", "
      "\"dropout\": null, \"unk_token\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
      "\"vocab\": {{{}}}, \"merges\": [\"t h\", \"th e\"]}}}}",
      added, kPreTokenizer, vocab);
}

const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer =
      value_or_throw(Tokenizer::parse(small_tokenizer_json(), "the small tokenizer"));
  return tokenizer;
}

TokenId control_id(std::string_view text) {
  const auto id = small_tokenizer().added_token(text);
  if (!id) throw std::logic_error("no such control token: " + std::string(text));
  return *id;
}

}  // namespace ingot::test
