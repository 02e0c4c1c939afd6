#include "src/checkpoint/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "src/checkpoint/strict_json.hpp"

namespace ingot {
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostProblemsPerFile = 50;
/// V4-Pro, the largest known, has some 140,000 tensors; names are under 100 bytes. Together these
/// bounds keep what a bad header takes below 100 MB.
constexpr JsonBounds kHeaderBounds{.token_bytes = 1 << 20, .tokens = 3'000'000, .objects = 150'000};
constexpr std::size_t kMostNameBytes = 256;

/// Receives the header's JSON piece by piece, so that a header of 100 MB is never held as a
/// document. Stops at the first structural mistake, which is left in `mistake`.
class HeaderSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> tensors;
  /// Which tensors' dtypes are unknown. Their names, of the first: of a file so many are told.
  std::vector<std::size_t> unknown_dtypes;
  std::vector<std::string> unknown_dtype_names;
  std::string mistake;

  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse_value(in_quotes(text));
  }
  bool number_integer(number_integer_t value) override {
    return refuse_value(fmt::to_string(value));  // negative: the others arrive as unsigned
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > INT64_MAX) return refuse_value(fmt::to_string(value));
      if (current().shape.size() == kMostDimensions) {
        return refuse(fmt::format("has more than {} dimensions", kMostDimensions));
      }
      current().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_seen_ == 2) return refuse("has more than two data_offsets");
      (offsets_seen_++ == 0 ? current().begin : current().end) = value;
      return true;
    }
    return refuse_value(fmt::to_string(value));
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != Field::dtype) return refuse_value(in_quotes(value));
    if (const auto dtype = dtype_from_name(value)) {
      current().dtype = *dtype;
    } else {
      unknown_dtypes.push_back(tensors.size() - 1);
      if (unknown_dtype_names.size() < kMostProblemsPerFile) unknown_dtype_names.push_back(value);
    }
    return true;
  }
  bool binary(binary_t&) override { return refuse_value("binary data"); }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
      if (!in_metadata_) field_ = Field::none;
      fields_seen_ = 0;
    } else {
      return refuse_value("an object");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor && fields_seen_ != kAllFields) {
      return refuse("lacks dtype, shape or data_offsets");
    }
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }
  bool key(string_t& key) override {
    if (place_ == Place::metadata) return true;
    if (place_ == Place::header) {
      in_metadata_ = key == "__metadata__";
      if (in_metadata_ && metadata_seen_) return fail_with("__metadata__ is given twice");
      metadata_seen_ = metadata_seen_ || in_metadata_;
      if (!in_metadata_) {
        if (key.size() > kMostNameBytes) {
          return fail_with(fmt::format("the tensor name {} has {} bytes, more than {}",
                                       in_quotes(key), key.size(), kMostNameBytes));
        }
        tensors.emplace_back();
        current().name = key;
      }
      return true;
    }
    field_ = key == "dtype"          ? Field::dtype
             : key == "shape"        ? Field::shape
             : key == "data_offsets" ? Field::offsets
                                     : Field::none;
    if (field_ == Field::none) return refuse(fmt::format("has an unknown key {}", in_quotes(key)));
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if ((fields_seen_ & bit) != 0) return refuse(fmt::format("gives {} twice", key));
    fields_seen_ |= bit;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || (field_ != Field::shape && field_ != Field::offsets)) {
      return refuse_value("an array");
    }
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    offsets_seen_ = 0;
    return true;
  }
  bool end_array() override {
    if (place_ == Place::offsets && offsets_seen_ != 2) return refuse("lacks two data_offsets");
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    return fail_with(fmt::format("the header is not JSON: {}", json_error_text(error.what())));
  }

 private:
  enum class Place { outside, header, metadata, tensor, shape, offsets };
  enum class Field { none, dtype, shape, offsets };
  static constexpr unsigned kAllFields = 0b1110;

  SafetensorsEntry& current() { return tensors.back(); }
  bool fail_with(std::string text) {
    if (mistake.empty()) mistake = std::move(text);
    return false;
  }
  bool refuse(std::string_view why) {
    return fail_with(fmt::format("tensor {} {}", in_quotes(current().name), why));
  }
  /// A value of a kind that has no business where it stands.
  bool refuse_value(std::string_view value) {
    switch (place_) {
      case Place::outside:
        return fail_with(fmt::format("the header is {}, not an object", value));
      case Place::header:
        return in_metadata_ ? fail_with(fmt::format("__metadata__ is {}, not an object", value))
                            : refuse(fmt::format("is {}, not an object", value));
      case Place::metadata:
        return fail_with(fmt::format("__metadata__ holds {}, not text", value));
      case Place::tensor:
        return refuse(fmt::format("has {} for its {}", value,
                                  field_ == Field::dtype   ? "dtype"
                                  : field_ == Field::shape ? "shape"
                                                           : "data_offsets"));
      case Place::shape:
        return refuse(fmt::format("has {} in its shape", value));
      case Place::offsets:
        return refuse(fmt::format("has {} in its data_offsets", value));
    }
    return false;
  }

  Place place_ = Place::outside;
  Field field_ = Field::none;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  unsigned fields_seen_ = 0;
  int offsets_seen_ = 0;
};

/// The problems of one file, of which the first 50 are told.
class FileProblems {
 public:
  FileProblems(std::string_view origin, Problems& problems)
      : origin_(origin), problems_(problems) {}
  ~FileProblems() {
    if (count_ > kMostProblemsPerFile) {
      const std::size_t rest = count_ - kMostProblemsPerFile;
      problems_.add_rest(ErrorCode::corrupt, rest,
                         fmt::format("{}: and {} more, which are not listed; fetch the file again",
                                     origin_, rest));
    }
  }
  FileProblems(const FileProblems&) = delete;
  FileProblems& operator=(const FileProblems&) = delete;

  void add(ErrorCode code, std::string_view text) {
    if (count_++ >= kMostProblemsPerFile) return;
    const std::string_view remedy =
        code == ErrorCode::corrupt
            ? "fetch the file again, or write it anew with a current tool"
            : "fetch an official checkpoint, or convert the tensor to a dtype that ingot reads";
    problems_.add(code, fmt::format("{}: {}; {}", origin_, text, remedy));
  }
  bool any() const { return count_ > 0; }

 private:
  std::string_view origin_;
  Problems& problems_;
  std::size_t count_ = 0;
};

/// Length of the JSON header, or nullopt with the reason added.
std::optional<std::uint64_t> header_length(std::span<const std::byte> file,
                                           FileProblems& problems) {
  if (file.size() < 8) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("the file has {}, less than the 8 of a safetensors header length",
                             counted(file.size(), "byte")));
    return std::nullopt;
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (length > kMostHeaderBytes) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("the header length is {}, more than the {} bytes that safetensors "
                             "allows: this is no safetensors file, or a damaged one",
                             length, kMostHeaderBytes));
    return std::nullopt;
  }
  if (length > file.size() - 8) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("the header length is {}, but only {} follow: the file is cut short",
                             length, counted(file.size() - 8, "byte")));
    return std::nullopt;
  }
  return length;
}

/// Size of one declared tensor.
void check_entry(const SafetensorsEntry& entry, FileProblems& problems) {
  if (entry.begin > entry.end) {
    problems.add(ErrorCode::corrupt, fmt::format("tensor {} has reversed data_offsets [{}, {}]",
                                                 in_quotes(entry.name), entry.begin, entry.end));
    return;
  }
  const auto bytes = tensor_bytes(entry.shape, entry.dtype);
  if (!bytes) {
    problems.add(ErrorCode::corrupt, fmt::format("tensor {} has a shape {} whose size overflows",
                                                 in_quotes(entry.name), shape_text(entry.shape)));
  } else if (*bytes != entry.end - entry.begin) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("tensor {} has data_offsets [{}, {}] of {} bytes, but {} {} takes {}",
                             in_quotes(entry.name), entry.begin, entry.end, entry.end - entry.begin,
                             dtype_name(entry.dtype), shape_text(entry.shape), *bytes));
  }
}

/// That the tensors, sorted by offset, fill [0, data_bytes) exactly. A tensor whose own offsets are
/// wrong was told of: neither it nor what lies beside it is told of again.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                  FileProblems& problems) {
  std::uint64_t filled = 0;
  std::size_t beyond = 0;  // tensors that end behind the file
  const SafetensorsEntry* first_beyond = nullptr;
  bool is_told = false;  // the tensor before has offsets that are no measure
  for (const SafetensorsEntry& entry : entries) {
    const auto bytes = tensor_bytes(entry.shape, entry.dtype);
    if (entry.begin > entry.end || bytes != entry.end - entry.begin) {
      is_told = true;
      if (entry.begin <= entry.end) filled = std::max(filled, entry.end);
      continue;
    }
    if (std::exchange(is_told, false) && entry.begin != filled && entry.end <= data_bytes) {
      filled = entry.end;
      continue;
    }
    const std::string name = in_quotes(entry.name);
    if (entry.end > data_bytes) {
      if (++beyond == 1) first_beyond = &entry;
      continue;
    }
    if (entry.begin < filled) {
      problems.add(ErrorCode::corrupt,
                   fmt::format("tensor {} starts at byte {}, inside the tensor before it, which "
                               "ends at {}",
                               name, entry.begin, filled));
    } else if (entry.begin > filled) {
      problems.add(ErrorCode::corrupt, fmt::format("a gap of {} lies before tensor {}",
                                                   counted(entry.begin - filled, "byte"), name));
    }
    filled = std::max(filled, entry.end);
  }
  if (beyond > 0) {
    problems.add(
        ErrorCode::corrupt,
        fmt::format("tensor {} ends at byte {} of the data, but the file has only {}{}: it is cut "
                    "short",
                    in_quotes(first_beyond->name), first_beyond->end, data_bytes,
                    beyond > 1 ? fmt::format(", as do {} more", beyond - 1) : ""));
  } else if (filled < data_bytes && !is_told) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("{} behind the last tensor", counted(data_bytes - filled, "byte")));
  }
}

/// Pages of the file are given back in such steps: a header may have 100 MB.
constexpr std::size_t kStep = std::size_t{1} << 20;

/// Gives back what has been read of a text, up to a place in it.
class PassedText {
 public:
  PassedText(std::string_view text, const PassedBytes& passed) : text_(text), passed_(passed) {}
  void operator()(std::size_t end) const {
    if (!passed_) return;
    // The two steps before it: the last look at one may have brought back a part of the other.
    const std::size_t begin = end > 2 * kStep ? end - 2 * kStep : 0;
    passed_(std::as_bytes(std::span(text_.substr(begin, end - begin))));
  }
  const char* begin() const { return text_.data(); }

 private:
  std::string_view text_;
  const PassedBytes& passed_;
};

/// Reads a text once, forward, for a parser.
class PassingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  PassingIterator(const char* at, const PassedText& passed) : at_(at), passed_(&passed) {}
  reference operator*() const { return *at_; }
  PassingIterator& operator++() {
    ++at_;
    const auto read = static_cast<std::size_t>(at_ - passed_->begin());
    if (read % kStep == 0) (*passed_)(read);
    return *this;
  }
  PassingIterator operator++(int) {
    PassingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const PassingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const PassedText* passed_;
};

// The JSON without the padding behind it, which is passed in steps: it may be the most of 100 MB.
std::string_view header_text(std::span<const std::byte> header, const PassedBytes& passed) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t begin = (end - 1) / kStep * kStep;
    const std::size_t kept = begin + without_padding(text.substr(begin, end - begin)).size();
    // All of it each time: a fault may map a large page, and bring back its upper part.
    if (passed) passed(header.subspan(kept));
    end = kept;
    if (kept > begin) break;
  }
  return text.substr(0, end);
}

}  // namespace

std::optional<std::uint64_t> tensor_bytes(std::span<const std::int64_t> shape, Dtype dtype) {
  auto bytes = static_cast<std::uint64_t>(dtype_bytes(dtype));
  // A zero anywhere makes the tensor empty, whatever the other sizes multiply to.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) bytes = 0;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file,
                                                         std::string_view origin,
                                                         Problems& all_problems,
                                                         const PassedBytes& passed) {
  FileProblems problems(origin, all_problems);
  const auto length = header_length(file, problems);
  if (!length) return std::nullopt;
  const std::string_view text =
      header_text(file.subspan(8, static_cast<std::size_t>(*length)), passed);
  // The format has no room for more; our parser would skip both.
  if (text.starts_with("\xEF\xBB\xBF") || text.starts_with(' ') || text.starts_with('\n')) {
    problems.add(ErrorCode::corrupt,
                 fmt::format("the header begins with {}, not with {{",
                             text[0] == '\xEF' ? "a byte-order mark" : "a blank"));
    return std::nullopt;
  }
  const PassedText passed_text(text, passed);
  if (const std::string problem = beyond_bounds(text, kHeaderBounds, passed_text);
      !problem.empty()) {
    problems.add(ErrorCode::corrupt, "the header " + problem);
    return std::nullopt;
  }
  HeaderSax sax;
  if (!nlohmann::json::sax_parse(PassingIterator(text.data(), passed_text),
                                 PassingIterator(text.data() + text.size(), passed_text), &sax)) {
    problems.add(ErrorCode::corrupt, sax.mistake);
    return std::nullopt;
  }
  SafetensorsHeader header;
  header.data_start = 8 + *length;
  header.entries = std::move(sax.tensors);
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    if (unknown == sax.unknown_dtypes.size() || sax.unknown_dtypes[unknown] != i) {
      check_entry(header.entries[i], problems);
      continue;
    }
    const bool named = unknown < sax.unknown_dtype_names.size();
    problems.add(
        ErrorCode::unsupported,
        fmt::format("tensor {} has the unknown dtype {}", in_quotes(header.entries[i].name),
                    named ? in_quotes(sax.unknown_dtype_names[unknown]) : "(not kept)"));
    ++unknown;
  }
  std::unordered_set<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) {
    if (!names.insert(entry.name).second) {
      problems.add(ErrorCode::corrupt,
                   fmt::format("tensor {} is given twice", in_quotes(entry.name)));
    }
  }
  names.clear();  // sorting moves the names
  // Stable, so that empty tensors at one offset keep the header's order.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_layout(header.entries, file.size() - header.data_start, problems);
  if (problems.any()) return std::nullopt;
  return header;
}

}  // namespace ingot
