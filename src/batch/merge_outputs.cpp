#include "src/batch/merge_outputs.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/why_not.hpp"
#include "src/batch/batch_answer.hpp"
#include "src/batch/id_set.hpp"
#include "src/batch/line_scan.hpp"

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::uint64_t hash_of(std::string_view id) {
  return std::max<std::uint64_t>(1, XXH3_64bits(id.data(), id.size()));
}

/// Numbers of lines that something is wrong with: how many, and the first few.
class LineList {
 public:
  void add(std::int64_t line) {
    constexpr std::int64_t kMostNamed = 5;
    if (++count_ <= kMostNamed) {
      named_ += fmt::format("{}{}", count_ == 1 ? "" : ", ", line);
    } else if (count_ == kMostNamed + 1) {
      named_ += " …";
    }
  }
  /// Nothing where there are none.
  void tell(std::string& out, std::string_view what) const {
    if (count_ == 0) return;
    out += fmt::format("{}{} {} ({})", out.empty() ? "" : "; ", count_, what, named_);
  }

 private:
  std::int64_t count_ = 0;
  std::string named_;
};

}  // namespace

Result<void> OutputMerge::add(const std::filesystem::path& file) {
  const int number = static_cast<int>(files_.size());
  FileDescriptor& opened =
      files_.emplace_back(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  names_.push_back(file);
  if (!opened.is_open()) {
    return fail(ErrorCode::not_found,
                fmt::format("merging {}: {}", file.string(), why_not_read(errno)));
  }
  std::int64_t count = 0;
  const auto scanned = scan_lines(
      opened.get(), file, [&](std::string_view line, std::int64_t offset) -> Result<void> {
        ++count;
        if (is_blank(line)) return {};
        const auto answer = parse_answer_line(line);
        if (!answer) {
          return fail(ErrorCode::corrupt,
                      fmt::format("merging {}: line {} is no answer of ingot generate (answers "
                                  "that were written with --text cannot be merged); leave it out",
                                  file.string(), count));
        }
        places_.push_back({answer->line, offset, static_cast<std::int64_t>(line.size()) + 1,
                           answer->custom_id ? hash_of(*answer->custom_id) : 0, number,
                           answer->failed});
        return {};
      });
  return scanned ? Result<void>() : Unexpected(scanned.error());
}

Result<std::string> OutputMerge::check(LineReader& input, BatchFormat format,
                                       bool fills_template) const {
  LineList missing, twice, foreign, other, repeated;
  IdSet ids;
  auto place = places_.begin();
  while (true) {
    auto line = input.next();
    if (!line) return Unexpected(line.error());
    if (!*line) break;
    const std::int64_t number = (*line)->number;
    for (; place != places_.end() && place->line < number; ++place)
      foreign.add(place->line);
    const bool blank = !(*line)->too_long && is_blank((*line)->text);
    const bool answered = place != places_.end() && place->line == number;
    if (!answered) {
      if (!blank) missing.add(number);
      continue;
    }
    if (blank) foreign.add(number);
    if (place->id != 0) {
      const auto id = custom_id_of(**line, format, fills_template);
      if (id && hash_of(*id) != place->id) other.add(number);
      const bool is_new = !id || id->empty() || format == BatchFormat::text || ids.insert(*id);
      if (!is_new && !place->failed) repeated.add(number);
    }
    ++place;
    for (; place != places_.end() && place->line == number; ++place)
      twice.add(number);
  }
  for (; place != places_.end(); ++place)
    foreign.add(place->line);
  std::string wrong;
  missing.tell(wrong, "lines have no answer");
  twice.tell(wrong, "answers are there twice");
  other.tell(wrong, "answers have another custom_id than their line");
  foreign.tell(wrong, "answers are to lines that the input has not");
  std::string answered_twice;
  repeated.tell(answered_twice, "answers are to a custom_id that an earlier line has");
  if (wrong.empty()) return answered_twice;
  return fail(ErrorCode::corrupt, "merging: " + wrong +
                                      "; nothing was written: give the outputs of all shards of "
                                      "this input");
}

Result<OutputMerge::Counts> OutputMerge::write(LineReader& input, BatchFormat format,
                                               bool fills_template, const Write& write) {
  std::stable_sort(places_.begin(), places_.end(),
                   [](const Place& a, const Place& b) { return a.line < b.line; });
  auto complete = check(input, format, fills_template);
  if (!complete) return Unexpected(complete.error());
  Counts counts;
  counts.repeated = std::move(*complete);
  std::string lines, buffer;
  for (const Place& place : places_) {
    const auto file = static_cast<std::size_t>(place.file);
    for (std::int64_t done = 0; done < place.bytes;) {
      const auto most = std::min<std::int64_t>(place.bytes - done, kPieceBytes);
      const auto bytes =
          read_at(files_[file].get(), place.offset + done, static_cast<std::size_t>(most), buffer);
      if (!bytes || bytes->empty()) {
        return fail(ErrorCode::io,
                    fmt::format("merging {}: it became shorter; merge again when nothing writes it",
                                names_[file].string()));
      }
      lines += *bytes;
      done += static_cast<std::int64_t>(bytes->size());
    }
    ++counts.lines;
    counts.failed += place.failed;
    if (lines.size() < kPieceBytes) continue;
    if (auto written = write(lines); !written) return Unexpected(written.error());
    lines.clear();
  }
  if (!lines.empty()) {
    if (auto written = write(lines); !written) return Unexpected(written.error());
  }
  return counts;
}

}  // namespace ingot
