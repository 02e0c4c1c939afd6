#include "src/text/tokenizer_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/checkpoint/strict_json.hpp"
#include "src/text/added_tokens.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

using Kind = JsonValue::Kind;

/// Values outside vocabulary and merges, for the added tokens each; V4's file has about 60.
constexpr std::size_t kMaxSettings = 10'000;
/// No token, merge or pattern is near as long; how many there are is counted while they are read.
constexpr JsonBounds kTokenizerBounds{
    .token_bytes = 64 << 10, .tokens = kMaxTokenizerBytes, .objects = kMaxTokenizerBytes};

Unexpected corrupt(std::string what) {
  return fail(ErrorCode::corrupt, std::move(what));
}
Unexpected unsupported(std::string what) {
  return fail(ErrorCode::unsupported, std::move(what));
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  return text.size() <= kLongest ? to_python_json(text)
                                 : fmt::format("(a text of {} bytes)", text.size());
}

std::optional<TokenId> token_id(std::string_view number) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  return whole && id >= 0 && id < kMaxTokenIds ? std::optional(id) : std::nullopt;
}

/// Absent, null, false, "" or []: a setting that changes nothing.
bool is_off(const JsonValue* value) {
  return value == nullptr || value->kind == Kind::null ||
         (value->kind == Kind::boolean && !value->boolean) ||
         (value->kind == Kind::string && value->text.empty()) ||
         (value->kind == Kind::array && value->items.empty());
}

std::string type_of(const JsonValue& value) {
  const JsonValue* type = value.find("type");
  return type != nullptr && type->kind == Kind::string ? shown(type->text) : std::string("(none)");
}

bool has_type(const JsonValue& value, std::string_view type) {
  const JsonValue* found = value.find("type");
  return found != nullptr && found->kind == Kind::string && found->text == type;
}

/// Every key of `object` is in `any` (its value does not matter here) or in `off` (it must not be
/// set): a setting that we do not know may change ids.
Result<void> check_keys(const JsonValue& object, std::string_view place,
                        std::initializer_list<std::string_view> any,
                        std::initializer_list<std::string_view> off) {
  for (std::size_t i = 0; i < object.keys.size(); ++i) {
    const std::string& key = object.keys[i];
    if (std::find(any.begin(), any.end(), key) != any.end()) continue;
    if (std::find(off.begin(), off.end(), key) == off.end()) {
      return unsupported(fmt::format("{}: unknown setting {}", place, shown(key)));
    }
    if (!is_off(&object.items[i])) {
      return unsupported(fmt::format("{}.{} is set, which is not supported", place, key));
    }
  }
  return {};
}

Result<TokenizerFile::Added> read_added(const JsonValue& value, std::size_t index) {
  const std::string place = fmt::format("added_tokens[{}]", index);
  if (value.kind != Kind::object) return corrupt(place + ": not an object");
  if (const auto keys = check_keys(value, place, {"id", "content", "special", "normalized"},
                                   {"single_word", "lstrip", "rstrip"});
      !keys) {
    return tl::unexpected(keys.error());
  }
  const JsonValue* id = value.find("id");
  const JsonValue* content = value.find("content");
  if (content == nullptr || content->kind != Kind::string || content->text.empty()) {
    return corrupt(place + ".content: missing, empty or not a string");
  }
  const std::optional<TokenId> number =
      id != nullptr && id->kind == Kind::number ? token_id(id->text) : std::nullopt;
  if (!number) {
    return corrupt(
        fmt::format("{}.id: missing or not an integer from 0 to {}", place, kMaxTokenIds - 1));
  }
  if (content->text.size() > AddedTokenSet::kMaxBytes) {
    return unsupported(fmt::format("{}.content: {} bytes, more than the {} supported", place,
                                   content->text.size(), AddedTokenSet::kMaxBytes));
  }
  return TokenizerFile::Added{content->text, *number, !is_off(value.find("normalized"))};
}

/// Streams vocabulary, merges and added tokens into a TokenizerFile, with their limits, and builds
/// a JsonValue of the rest.
class FileHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  TokenizerFile file;

  bool null() override { return value({}); }
  bool boolean(bool flag) override { return value({Kind::boolean, flag, {}, {}, {}}); }
  bool number_integer(number_integer_t number) override { return integer(std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override {
    return integer(std::to_string(number));
  }
  bool number_float(number_float_t, const string_t& source) override { return integer(source); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool string(string_t& text) override {
    if (section_ == Section::merges) return merge_text(std::move(text));
    return value({Kind::string, false, std::move(text), {}, {}});
  }

  bool key(string_t& name) override {
    if (section_ == Section::vocab) {
      vocab_key_ = std::move(name);
      return true;
    }
    if (section_ == Section::settings && depth_ == 1) top_key_ = name;
    if (section_ == Section::settings && depth_ == 2) second_key_ = name;
    return note((section_ == Section::added ? added_ : builder_).key(std::move(name)));
  }

  bool start_object(std::size_t) override {
    if (section_ == Section::settings && is_model_part("vocab")) {
      return enter(Section::vocab);
    }
    if (section_ == Section::vocab) return refuse_vocab_value();
    if (section_ == Section::merges) return refuse_merge();
    return open(Kind::object);
  }

  bool start_array(std::size_t) override {
    if (section_ == Section::settings && is_model_part("merges")) {
      return enter(Section::merges);
    }
    if (section_ == Section::settings && depth_ == 1 && top_key_ == "added_tokens") {
      return enter(Section::added);
    }
    if (section_ == Section::vocab) return refuse_vocab_value();
    if (section_ == Section::merges) {
      if (depth_ != section_depth_) return refuse_merge();
      ++depth_;
      pair_.clear();
      return true;
    }
    return open(Kind::array);
  }

  bool end_object() override { return close(); }

  bool end_array() override {
    if (section_ == Section::merges && depth_ == section_depth_ + 1) {
      --depth_;
      if (pair_.size() != 2) return refuse_merge();
      return add_merge(std::move(pair_[0]), std::move(pair_[1]));
    }
    return close();
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    return refuse(ErrorCode::corrupt, "not valid JSON: " + json_error_text(e.what()));
  }

  JsonValue take_settings() { return builder_.take(); }
  const Error& error() const { return error_; }

 private:
  enum class Section { settings, vocab, merges, added };

  bool refuse(ErrorCode code, std::string what) {
    error_ = {code, std::move(what)};
    return false;
  }
  bool note(std::string problem) {
    return problem.empty() || refuse(ErrorCode::corrupt, std::move(problem));
  }
  bool refuse_vocab_value() {
    return refuse(ErrorCode::corrupt, fmt::format("model.vocab[{}]: not an integer from 0 to {}",
                                                  shown(vocab_key_), kMaxTokenIds - 1));
  }
  bool refuse_merge() {
    return refuse(ErrorCode::corrupt,
                  fmt::format("model.merges[{}]: not a pair of tokens", file.merges.size()));
  }

  bool is_model_part(std::string_view name) const {
    return depth_ == 2 && top_key_ == "model" && second_key_ == name;
  }

  bool enter(Section section) {
    section_ = section;
    section_depth_ = ++depth_;
    return note(builder_.add({Kind::boolean, true, {}, {}, {}}));  // stands for the list
  }

  bool open(Kind kind) {
    ++depth_;
    return note((section_ == Section::added ? added_ : builder_).open(kind));
  }

  bool close() {
    --depth_;
    if (section_ != Section::settings && depth_ + 1 == section_depth_) {
      section_ = Section::settings;
      return true;
    }
    if (section_ != Section::added) {
      builder_.close();
      return true;
    }
    added_.close();
    return added_.done() ? add_added() : true;
  }

  bool integer(std::string text) { return value({Kind::number, false, std::move(text), {}, {}}); }

  bool value(JsonValue value) {
    switch (section_) {
      case Section::settings:
        return note(builder_.add(std::move(value)));
      case Section::merges:
        return refuse_merge();
      case Section::added:
        if (!note(added_.add(std::move(value)))) return false;
        return added_.done() ? add_added() : true;
      case Section::vocab:
        break;
    }
    const std::optional<TokenId> id =
        value.kind == Kind::number ? token_id(value.text) : std::nullopt;
    if (!id) return refuse_vocab_value();
    if (file.vocab.size() == static_cast<std::size_t>(kMaxTokenIds)) {
      return refuse(ErrorCode::unsupported,
                    fmt::format("model.vocab: more than the {} tokens supported", kMaxTokenIds));
    }
    file.vocab.emplace_back(std::move(vocab_key_), *id);
    return true;
  }

  bool merge_text(std::string text) {
    if (depth_ != section_depth_) {
      if (pair_.size() == 2) return refuse_merge();
      pair_.push_back(std::move(text));
      return true;
    }
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return refuse_merge();
    }
    return add_merge(text.substr(0, space), text.substr(space + 1));
  }

  bool add_merge(std::string left, std::string right) {
    if (left.empty() || right.empty()) return refuse_merge();
    if (file.merges.size() == kMaxMerges) {
      return refuse(ErrorCode::unsupported,
                    fmt::format("model.merges: more than the {} supported", kMaxMerges));
    }
    file.merges.emplace_back(std::move(left), std::move(right));
    return true;
  }

  bool add_added() {
    if (file.added.size() == kMaxAddedTokens) {
      return refuse(ErrorCode::unsupported,
                    fmt::format("added_tokens: more than the {} supported", kMaxAddedTokens));
    }
    Result<TokenizerFile::Added> added = read_added(added_.take(), file.added.size());
    if (!added) {
      error_ = added.error();
      return false;
    }
    file.added.push_back(std::move(*added));
    return true;
  }

  JsonBuilder builder_{kMaxSettings};  ///< of all but the three lists
  JsonBuilder added_{kMaxSettings};    ///< of one added token
  Error error_{ErrorCode::corrupt, {}};
  Section section_ = Section::settings;
  int depth_ = 0, section_depth_ = 0;
  std::string top_key_, second_key_, vocab_key_;
  std::vector<std::string> pair_;
};

Result<void> check_model(const JsonValue* model) {
  if (model == nullptr || model->kind != Kind::object) return corrupt("model: missing");
  if (!has_type(*model, "BPE")) {
    return unsupported(fmt::format("model of type {}; only BPE is supported", type_of(*model)));
  }
  for (const std::string_view part : {"vocab", "merges"}) {
    const JsonValue* list = model->find(part);
    if (list == nullptr || list->kind != Kind::boolean) {
      return corrupt(fmt::format("model.{}: missing or of the wrong type", part));
    }
  }
  return check_keys(*model, "model", {"type", "vocab", "merges"},
                    {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", "byte_fallback", "ignore_merges"});
}

Result<std::string> read_split(const JsonValue& split, const std::string& place) {
  if (const auto keys = check_keys(split, place, {"type", "pattern", "behavior"}, {"invert"});
      !keys) {
    return tl::unexpected(keys.error());
  }
  const JsonValue* behavior = split.find("behavior");
  if (behavior == nullptr || behavior->text != "Isolated") {
    return unsupported(place + ".behavior: only \"Isolated\" is supported");
  }
  const JsonValue* pattern = split.find("pattern");
  const JsonValue* regex = pattern != nullptr ? pattern->find("Regex") : nullptr;
  if (regex == nullptr || regex->kind != Kind::string) {
    return unsupported(place + ".pattern: only a \"Regex\" is supported");
  }
  return regex->text;
}

Result<std::vector<std::string>> read_patterns(const JsonValue* pre_tokenizer) {
  if (pre_tokenizer == nullptr || pre_tokenizer->kind != Kind::object) {
    return corrupt("pre_tokenizer: missing");
  }
  const JsonValue* stages = pre_tokenizer->find("pretokenizers");
  if (!has_type(*pre_tokenizer, "Sequence") || stages == nullptr || stages->kind != Kind::array ||
      stages->items.empty()) {
    return unsupported(
        fmt::format("pre_tokenizer of type {}; only a Sequence of Split stages and "
                    "a ByteLevel stage is supported",
                    type_of(*pre_tokenizer)));
  }
  std::vector<std::string> patterns;
  for (std::size_t i = 0; i < stages->items.size(); ++i) {
    const JsonValue& stage = stages->items[i];
    const std::string place = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
    const bool last = i + 1 == stages->items.size();
    if (!has_type(stage, last ? "ByteLevel" : "Split")) {
      return unsupported(
          fmt::format("{} of type {}; Split stages and then one ByteLevel stage are "
                      "supported",
                      place, type_of(stage)));
    }
    if (last) {
      const auto keys =
          check_keys(stage, place, {"type", "trim_offsets"}, {"add_prefix_space", "use_regex"});
      if (!keys) return tl::unexpected(keys.error());
      for (const char* setting : {"add_prefix_space", "use_regex"}) {  // both default to true
        if (stage.find(setting) != nullptr) continue;
        return unsupported(fmt::format("{}.{} is on, which is not supported", place, setting));
      }
      break;
    }
    Result<std::string> pattern = read_split(stage, place);
    if (!pattern) return tl::unexpected(pattern.error());
    patterns.push_back(std::move(*pattern));
  }
  return patterns;
}

Result<void> check_settings(const JsonValue& root) {
  if (root.kind != Kind::object) return corrupt("not an object: this is no tokenizer.json");
  if (const auto keys = check_keys(root, "top level",
                                   {"version", "added_tokens", "normalizer", "pre_tokenizer",
                                    "post_processor", "decoder", "model"},
                                   {"truncation", "padding"});
      !keys) {
    return keys;
  }
  if (const auto model = check_model(root.find("model")); !model) return model;
  if (const JsonValue* normalizer = root.find("normalizer");
      !is_off(normalizer) &&
      !(has_type(*normalizer, "Sequence") && is_off(normalizer->find("normalizers")))) {
    return unsupported(
        fmt::format("normalizer of type {}; none is supported", type_of(*normalizer)));
  }
  const JsonValue* decoder = root.find("decoder");
  if (decoder == nullptr || !has_type(*decoder, "ByteLevel")) {
    return unsupported(
        fmt::format("decoder {}; only ByteLevel is supported",
                    decoder != nullptr ? "of type " + type_of(*decoder) : "missing"));
  }
  if (const JsonValue* post = root.find("post_processor");
      !is_off(post) && !has_type(*post, "ByteLevel")) {
    return unsupported(
        fmt::format("post_processor of type {}; only ByteLevel is supported", type_of(*post)));
  }
  const JsonValue* added = root.find("added_tokens");
  if (added != nullptr && added->kind != Kind::boolean) {
    return corrupt("added_tokens: not an array");
  }
  return {};
}

}  // namespace

Error tokenizer_error(std::string_view origin, Error error) {
  error.message = fmt::format(
      "reading tokenizer {}: {}; use the unchanged tokenizer.json of a DeepSeek-V4 checkpoint",
      origin, error.message);
  return error;
}

Result<TokenizerFile> parse_tokenizer_file(std::string_view json, std::string_view origin) {
  const auto with_origin = [&](Error error) {
    return tl::unexpected(tokenizer_error(origin, std::move(error)));
  };
  if (const std::string problem = beyond_bounds(json, kTokenizerBounds); !problem.empty()) {
    return with_origin({ErrorCode::corrupt, problem});
  }
  FileHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    return with_origin(handler.error());
  }
  const JsonValue settings = handler.take_settings();
  if (const auto checked = check_settings(settings); !checked) return with_origin(checked.error());
  Result<std::vector<std::string>> patterns = read_patterns(settings.find("pre_tokenizer"));
  if (!patterns) return with_origin(patterns.error());
  handler.file.patterns = std::move(*patterns);
  return std::move(handler.file);
}

}  // namespace ingot
