#include "tests/support/made_tokenizer.hpp"

#include <string>

#include "src/text/control_tokens.hpp"

namespace ingot::test {
namespace {

/// GPT-2's letter for a byte. `others` counts the bytes that do not stand for themselves.
std::string letter(int byte, int& others) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
  const int point = printable ? byte : 0x100 + others++;
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

constexpr const char* kWords =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

nlohmann::ordered_json split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

}  // namespace

nlohmann::ordered_json made_tokenizer() {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object();
  int id = 0;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte)
    vocab[letter(byte, others)] = id++;
  for (const char* word : {"ab", "abc", "aa", "aaaa"})
    vocab[word] = id++;
  Json added = Json::array();
  for (const std::string_view marker : control::kAll) {
    added.push_back({{"id", id++},
                     {"content", marker},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {split("\\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(kWords), byte_level}}}},
      {"post_processor", byte_level},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", {"a b", "ab c", "a a", "aa aa"}}}}};
}

}  // namespace ingot::test
