#include "src/batch/earlier_output.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "src/batch/line_scan.hpp"
#include "src/batch/request_fields.hpp"

namespace ingot {
namespace {

constexpr std::size_t kTornBytes = 64;

std::uint64_t hash_of(const std::optional<std::string>& id) {
  if (!id) return 0;
  return std::max<std::uint64_t>(1, XXH3_64bits(id->data(), id->size()));
}

/// Whether a line may have begun so that was torn: with the beginning of an answer, as far as it
/// goes, or with zeros, which a power cut leaves.
bool is_torn_answer(std::string_view end) {
  constexpr std::string_view kBegin = "{\"id\":\"batch_req_";
  std::size_t at = 0;
  for (const char c : end) {
    if (c == '\0' || at == kBegin.size()) return true;
    if (c == ' ') continue;
    if (c != kBegin[at++]) return false;
  }
  return true;
}

std::string named(const std::optional<std::string>& id) {
  return id ? "custom_id " + shown(*id) : std::string("no custom_id");
}

}  // namespace

Result<void> EarlierOutput::read(int fd) {
  answers_.clear();
  last_line_ = 0;
  std::int64_t number = 0;
  const auto foreign = [&](std::string_view what) {
    return fail(ErrorCode::corrupt,
                fmt::format("going on with {}: {} is no answer of ingot generate; move the file "
                            "away, or give --force to begin anew",
                            file_.string(), what));
  };
  const auto scanned =
      scan_lines(fd, file_, [&](std::string_view line, std::int64_t) -> Result<void> {
        ++number;
        const auto answer = parse_answer_line(line);
        if (!answer) return foreign(fmt::format("line {}", number));
        Answer& one = answers_.emplace_back();
        one.line = answer->line;
        one.id = hash_of(answer->custom_id);
        one.number = number;
        one.failed = answer->failed;
        one.repeats = answer->repeats;
        last_line_ = std::max(last_line_, answer->line);
        return {};
      });
  if (!scanned) return Unexpected(scanned.error());
  std::string buffer;
  const auto torn = read_at(fd, *scanned, kTornBytes, buffer);
  if (torn && !is_torn_answer(*torn)) return foreign(fmt::format("line {}", number + 1));
  return {};
}

// The custom_id is read again, as this is the one line that it is wanted of.
Unexpected EarlierOutput::refuse(int fd, const Answer& answer, std::string_view why) const {
  std::optional<std::string> id;
  std::int64_t number = 0;
  (void)scan_lines(fd, file_, [&](std::string_view line, std::int64_t) -> Result<void> {
    if (++number < answer.number) return {};
    if (const auto parsed = parse_answer_line(line)) id = parsed->custom_id;
    return fail(ErrorCode::invalid_argument, "found");  // ends the scan
  });
  return fail(ErrorCode::invalid_argument,
              fmt::format("going on with {}: its line {} answers line {} of the input, {}, {}; or "
                          "move the file away. Nothing was changed",
                          file_.string(), answer.number, answer.line, named(id), why));
}

/// What needs no look at the input.
Result<void> EarlierOutput::check_numbers(int fd, const InputReading& reading) {
  const auto other = std::find_if(answers_.begin(), answers_.end(), [&](const Answer& answer) {
    return !reading.shard.has(answer.line);
  });
  if (other != answers_.end()) {
    return refuse(fd, *other,
                  fmt::format("which is not in --shard {}/{}: give the --shard of the run that "
                              "wrote it",
                              reading.shard.index, reading.shard.count));
  }
  std::sort(answers_.begin(), answers_.end(), [](const Answer& a, const Answer& b) {
    return std::pair(a.line, a.number) < std::pair(b.line, b.number);
  });
  const auto twice =
      std::adjacent_find(answers_.begin(), answers_.end(),
                         [](const Answer& a, const Answer& b) { return a.line == b.line; });
  if (twice == answers_.end()) return {};
  return refuse(fd, twice[1],
                fmt::format("as its line {} does: remove one of them", twice[0].number));
}

Result<void> EarlierOutput::check_line(int fd, const Answer& answer,
                                       const std::optional<std::string>& id, bool repeated,
                                       const InputReading& reading) const {
  if (answer.failed && retry_failed_) return {};
  const std::string_view mended =
      answer.failed ? "give --retry-failed where lines that failed were mended, else " : "";
  if (answer.id != hash_of(id)) {
    return refuse(
        fd, answer,
        fmt::format("which has {} in {}: {}give the --input (and --template) of the run that wrote "
                    "it",
                    named(id), reading.name, mended));
  }
  if (repeated && !answer.repeats) {
    return refuse(
        fd, answer,
        fmt::format("which an earlier line of {} has, too, so that this one fails: {}give "
                    "the --input that it is the output of",
                    reading.name, mended));
  }
  if (!repeated && answer.repeats) {
    return refuse(fd, answer,
                  fmt::format("as one that an earlier line has, too, but none of {} has: give "
                              "--retry-failed to answer it",
                              reading.name));
  }
  return {};
}

Result<DoneLines> EarlierOutput::compare(int fd, LineReader& input, const InputReading& reading) {
  if (auto checked = check_numbers(fd, reading); !checked) return Unexpected(checked.error());
  DoneLines done;
  auto answer = answers_.begin();
  std::int64_t lines = 0;
  while (answer != answers_.end()) {
    const auto line = input.next();
    if (!line) return Unexpected(line.error());
    if (!*line) {
      return refuse(
          fd, *answer,
          fmt::format(
              "but {} has {} lines: give the --input (and --template) of the run that wrote it",
              reading.name, lines));
    }
    lines = (*line)->number;
    if (!reading.shard.has(lines)) continue;
    const bool answered = answer->line == lines;
    const bool goes = answered && answer->failed && retry_failed_;
    if (!(*line)->too_long && is_blank((*line)->text)) {
      if (answered && !goes) {
        return refuse(
            fd, *answer,
            fmt::format(
                "which is blank in {}: give the --input (and --template) of the run that wrote it",
                reading.name));
      }
      answer += answered ? 1 : 0;
      continue;
    }
    std::optional<std::string> id;
    bool repeated = false;
    if (answered || reading.format == BatchFormat::jsonl) {
      id = custom_id_of(**line, reading.format, reading.fills_template);
      if (reading.format == BatchFormat::jsonl && id && !id->empty()) repeated = !done.add_id(*id);
    }
    if (answered) {
      if (auto checked = check_line(fd, *answer, id, repeated, reading); !checked) {
        return Unexpected(checked.error());
      }
      if (!goes) done.add_done(lines, answer->failed);
      ++answer;
    }
    if (repeated && (!answered || goes)) done.add_repeated(lines);
  }
  done.set_last(lines);
  std::vector<Answer>().swap(answers_);
  return done;
}

}  // namespace ingot
