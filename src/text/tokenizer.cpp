#include "src/text/tokenizer.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <unordered_map>

#include "src/text/added_tokens.hpp"
#include "src/text/byte_pair.hpp"
#include "src/text/control_tokens.hpp"
#include "src/text/json_value.hpp"
#include "src/text/pre_tokenizer.hpp"
#include "src/text/tokenizer_file.hpp"
#include "src/text/utf8.hpp"

namespace ingot {

struct Tokenizer::Impl {
  PreTokenizer pre_tokenizer;
  BytePairEncoder byte_pairs;
  AddedTokenSet added;             ///< searched for first
  AddedTokenSet added_normalized;  ///< searched for in what is left
  std::vector<std::string> texts;  ///< bytes by id
  std::vector<bool> is_added;      ///< by id
  std::size_t longest_bytes;       ///< of `texts`
  bool added_hold_lines;           ///< an added token has a LF in it
};

namespace {

/// What the byte-level alphabet (GPT-2's) has for each byte: printable Latin-1 stands for itself,
/// the other 68 bytes for U+0100 and on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      byte_of_[static_cast<std::size_t>(printable ? byte : next++)] = byte;
    }
  }

  /// The bytes that a token's text stands for; the text itself where it is not in the alphabet.
  std::string bytes(const std::string& text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const auto first = static_cast<unsigned char>(text[i]);
      std::size_t point = first;
      if (first >= 0xC2 && first < 0xE0 && i + 1 < text.size()) {
        point = (first & 0x1Fu) << 6 | (static_cast<unsigned char>(text[i + 1]) & 0x3Fu);
        i += 2;
      } else if (first < 0x80) {
        i += 1;
      } else {
        return text;
      }
      if (point >= byte_of_.size() || byte_of_[point] < 0) return text;
      out += static_cast<char>(byte_of_[point]);
    }
    return out;
  }

  /// The text of each byte alone.
  std::string text(int byte) const {
    for (std::size_t point = 0; point < byte_of_.size(); ++point) {
      if (byte_of_[point] != byte) continue;
      if (point < 0x80) return std::string(1, static_cast<char>(point));
      return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
    }
    return {};
  }

 private:
  std::array<int, 0x100 + 68> byte_of_;
};

using Vocab = std::unordered_map<std::string_view, TokenId>;

Result<Vocab> index_vocab(const TokenizerFile& file, std::vector<std::string>& texts) {
  TokenId highest = -1;
  for (const auto& [text, id] : file.vocab)
    highest = std::max(highest, id);
  for (const auto& added : file.added)
    highest = std::max(highest, added.id);
  texts.resize(static_cast<std::size_t>(highest) + 1);
  std::vector<bool> taken(texts.size());
  const ByteAlphabet alphabet;
  Vocab vocab;
  vocab.reserve(file.vocab.size());
  for (const auto& [text, id] : file.vocab) {
    const auto place = static_cast<std::size_t>(id);
    if (text.empty() || !vocab.emplace(text, id).second || taken[place]) {
      return fail(ErrorCode::corrupt,
                  fmt::format("model.vocab[{}]: no text, or the text or the id {} is there "
                              "twice",
                              to_python_json(text), id));
    }
    taken[place] = true;
    texts[place] = alphabet.bytes(text);
  }
  return vocab;
}

Result<BytePairEncoder> build_byte_pairs(const TokenizerFile& file, const Vocab& vocab) {
  std::array<TokenId, 256> byte_ids{};
  const ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocab.find(alphabet.text(byte));
    if (found == vocab.end()) {
      return fail(ErrorCode::corrupt, fmt::format("model.vocab: no token for the byte {:#04x} "
                                                  "(\"{}\")",
                                                  byte, alphabet.text(byte)));
    }
    byte_ids[static_cast<std::size_t>(byte)] = found->second;
  }
  BytePairEncoder encoder(byte_ids, file.merges.size());
  std::string joined;
  for (std::size_t i = 0; i < file.merges.size(); ++i) {
    const auto& [left, right] = file.merges[i];
    joined.assign(left).append(right);
    const auto refuse = [&](std::string_view text, std::string_view why) {
      return fail(ErrorCode::corrupt,
                  fmt::format("model.merges[{}]: {} {}", i, to_python_json(text), why));
    };
    std::array<TokenId, 3> ids{};
    std::size_t part = 0;
    for (const std::string* text : {&left, &right, static_cast<const std::string*>(&joined)}) {
      const auto found = vocab.find(*text);
      if (found == vocab.end()) return refuse(*text, "is not in model.vocab");
      ids[part++] = found->second;
    }
    if (!encoder.add(ids[0], ids[1], {static_cast<std::uint32_t>(i), ids[2]})) {
      return refuse(left + " " + right, "is there twice");
    }
  }
  return encoder;
}

/// Enters the added tokens into `texts`, and sorts them into the two sets.
Result<void> index_added(const TokenizerFile& file, const Vocab& vocab,
                         std::vector<std::string>& texts, std::vector<bool>& is_added,
                         std::array<AddedTokenSet, 2>& sets) {
  is_added.resize(texts.size());
  std::array<std::vector<AddedTokenSet::Entry>, 2> entries;
  std::unordered_map<std::string_view, TokenId> seen;
  for (std::size_t i = 0; i < file.added.size(); ++i) {
    const TokenizerFile::Added& added = file.added[i];
    const auto place = static_cast<std::size_t>(added.id);
    const auto in_vocab = vocab.find(added.text);
    const bool agrees = in_vocab != vocab.end() ? in_vocab->second == added.id
                                                : texts[place].empty() && !is_added[place];
    if (!seen.emplace(added.text, added.id).second || !agrees) {
      return fail(ErrorCode::corrupt,
                  fmt::format("added_tokens[{}]: the text {} or the id {} is taken", i,
                              to_python_json(added.text), added.id));
    }
    texts[place] = added.text;
    is_added[place] = true;
    entries[added.normalized ? 1 : 0].push_back({added.text, added.id});
  }
  std::string missing;
  for (const std::string_view marker : control::kAll) {
    if (seen.find(marker) == seen.end()) missing += fmt::format(" {}", marker);
  }
  if (!missing.empty()) {
    return fail(ErrorCode::corrupt,
                fmt::format("added_tokens: the chat format's markers are missing:{}", missing));
  }
  for (std::size_t set = 0; set < sets.size(); ++set) {
    sets[set] = AddedTokenSet(std::move(entries[set]));
  }
  return {};
}

/// The whole file, unpacked if its name ends in .zst, or why not.
Result<std::string> read_tokenizer_bytes(const std::filesystem::path& file) {
  const auto too_large = [&] {
    return fail(ErrorCode::unsupported,
                fmt::format("more than the {} MiB supported", kMaxTokenizerBytes >> 20));
  };
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return fail(ErrorCode::not_found, "no such file");
  if (!std::filesystem::is_regular_file(file, error)) {
    return fail(ErrorCode::not_found, "not a regular file");
  }
  std::ifstream in(file, std::ios::binary);
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!in || error) return fail(ErrorCode::io, "cannot be opened");
  if (size > kMaxTokenizerBytes) return too_large();
  std::string stored(static_cast<std::size_t>(size), '\0');
  if (!in.read(stored.data(), static_cast<std::streamsize>(stored.size()))) {
    return fail(ErrorCode::io, "cannot be read to its end");
  }
  if (file.extension() != ".zst") return stored;

  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                             ZSTD_freeDStream);
  ZSTD_inBuffer input{stored.data(), stored.size(), 0};
  std::string json;
  std::vector<char> block(ZSTD_DStreamOutSize());
  std::size_t wanted = 1;
  while (input.pos < input.size) {
    ZSTD_outBuffer output{block.data(), block.size(), 0};
    wanted = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(wanted) != 0) {
      return fail(ErrorCode::corrupt,
                  fmt::format("not a zstd file: {}", ZSTD_getErrorName(wanted)));
    }
    if (json.size() + output.pos > kMaxTokenizerBytes) return too_large();
    json.append(block.data(), output.pos);
  }
  while (wanted != 0) {  // what the decoder still holds
    ZSTD_outBuffer output{block.data(), block.size(), 0};
    wanted = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(wanted) != 0 || (wanted != 0 && output.pos == 0)) {
      return fail(ErrorCode::corrupt, "the zstd file is cut short");
    }
    if (json.size() + output.pos > kMaxTokenizerBytes) return too_large();
    json.append(block.data(), output.pos);
  }
  return json;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& file) {
  std::filesystem::path path = file;
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    path = file / "tokenizer.json";
    if (!std::filesystem::exists(path, error)) path += ".zst";
    if (!std::filesystem::exists(path, error)) {
      return fail(ErrorCode::not_found,
                  fmt::format("reading tokenizer: {} holds no tokenizer.json or "
                              "tokenizer.json.zst; copy the checkpoint's tokenizer.json there",
                              file.string()));
    }
  }
  const Result<std::string> json = read_tokenizer_bytes(path);
  if (!json) return tl::unexpected(tokenizer_error(path.string(), json.error()));
  return parse(*json, path.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view origin) {
  const auto refuse = [&](const Error& error) {
    return tl::unexpected(tokenizer_error(origin, error));
  };
  const Result<TokenizerFile> file = parse_tokenizer_file(json, origin);
  if (!file) return tl::unexpected(file.error());
  std::vector<std::string> texts;
  const Result<Vocab> vocab = index_vocab(*file, texts);
  if (!vocab) return refuse(vocab.error());
  Result<BytePairEncoder> byte_pairs = build_byte_pairs(*file, *vocab);
  if (!byte_pairs) return refuse(byte_pairs.error());
  std::vector<bool> is_added;
  std::array<AddedTokenSet, 2> added;
  if (const auto indexed = index_added(*file, *vocab, texts, is_added, added); !indexed) {
    return refuse(indexed.error());
  }
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::compile(file->patterns);
  if (!pre_tokenizer) {
    Error error = pre_tokenizer.error();
    error.message = "pre_tokenizer: " + error.message;
    return refuse(error);
  }
  std::size_t longest = 1;
  for (const std::string& text : texts)
    longest = std::max(longest, text.size());
  bool hold_lines = false;
  for (std::size_t id = 0; id < texts.size(); ++id)
    hold_lines |= is_added[id] && texts[id].find('\n') != std::string::npos;
  return Tokenizer(std::make_unique<const Impl>(
      Impl{std::move(*pre_tokenizer), std::move(*byte_pairs), std::move(added[0]),
           std::move(added[1]), std::move(texts), std::move(is_added), longest, hold_lines}));
}

void Tokenizer::encode(std::string_view text, AddedTokens added, std::vector<TokenId>& out) const {
  std::string mended;
  text = mend_utf8(text, mended);

  struct Target {
    const BytePairEncoder& byte_pairs;
    std::vector<TokenId>& out;
    BytePairEncoder::Workspace workspace = {};
  } target{impl_->byte_pairs, out};
  const auto take = [](void* context, std::string_view piece) {
    auto& to = *static_cast<Target*>(context);
    to.byte_pairs.encode(piece, to.workspace, to.out);
  };
  const auto ordinary = [&](std::string_view part) {
    if (!part.empty()) impl_->pre_tokenizer.split(part, take, &target);
  };
  if (added == AddedTokens::as_text) return ordinary(text);

  // Each set cuts what the one before it left.
  const auto cut = [&](const AddedTokenSet& set, std::string_view part, const auto& rest) {
    std::size_t done = 0;
    while (const auto match = set.find(part, done)) {
      rest(part.substr(done, match->begin - done));
      out.push_back(match->id);
      done = match->begin + match->bytes;
    }
    rest(part.substr(done));
  };
  cut(impl_->added, text,
      [&](std::string_view part) { cut(impl_->added_normalized, part, ordinary); });
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  std::vector<TokenId> out;
  encode(text, added, out);
  return out;
}

std::size_t Tokenizer::split_point(std::string_view text, AddedTokens added) const {
  const bool recognise = added == AddedTokens::recognise;
  if (recognise && impl_->added_hold_lines) return 0;
  return impl_->pre_tokenizer.split_point(text, recognise);
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= size()) return {};
  return impl_->texts[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string out;
  for (const TokenId id : ids)
    out += bytes(id);
  return out;
}

std::optional<TokenId> Tokenizer::added_token(std::string_view text) const {
  const auto found = impl_->added.id_of(text);
  return found ? found : impl_->added_normalized.id_of(text);
}

bool Tokenizer::is_added(TokenId id) const {
  return id >= 0 && id < size() && impl_->is_added[static_cast<std::size_t>(id)];
}

std::size_t Tokenizer::longest_token_bytes() const {
  return impl_->longest_bytes;
}

int Tokenizer::size() const {
  return static_cast<int>(impl_->texts.size());
}

}  // namespace ingot
