#include "tuner/rank_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "runtime/base/byte_stream.hpp"

namespace ingot {
namespace {

std::string by_rank(const std::vector<RaceResult>& each, std::size_t rank,
                    const std::string& reason) {
  return each.size() == 1 ? reason : fmt::format("rank {}: {}", rank, reason);
}

CandidateTimes join_candidate(const std::vector<RaceResult>& each, std::size_t index) {
  CandidateTimes joined;
  joined.time_us = 0;
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    const CandidateTimes& one = each[rank].candidates[index];
    joined.barred = joined.barred || one.barred;
    if (joined.reason.empty() && !one.reason.empty()) {
      joined.reason = by_rank(each, rank, one.reason);
    }
    if (one.dropped_after > 0 &&
        (joined.dropped_after == 0 || one.dropped_after < joined.dropped_after)) {
      joined.dropped_after = one.dropped_after;
    }
    if (!one.time_us || !joined.time_us) {
      joined.time_us.reset();
    } else {
      joined.time_us = std::max(*joined.time_us, *one.time_us);
    }
  }
  if (joined.barred) joined.time_us.reset();
  return joined;
}

}  // namespace

RaceResult join_results(const std::vector<RaceResult>& each) {
  RaceResult joined;
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    joined.noise = std::max(joined.noise, each[rank].noise);
    joined.complete = joined.complete && each[rank].complete;
    if (joined.failure.empty() && !each[rank].failure.empty()) {
      joined.failure = by_rank(each, rank, each[rank].failure);
    }
  }
  for (std::size_t i = 0; i < each.front().candidates.size(); ++i)
    joined.candidates.push_back(join_candidate(each, i));
  return joined;
}

RaceResult agree(RankGroup& ranks, const RaceResult& mine) {
  const std::vector<std::string> gathered = ranks.gather(encode_result(mine));
  std::string decided;
  if (ranks.rank() == 0) {
    std::vector<RaceResult> each;
    for (const std::string& bytes : gathered)
      each.push_back(value_or_throw(decode_result(bytes)));
    for (const RaceResult& one : each) {
      if (one.candidates.size() == mine.candidates.size()) continue;
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("tuning: one rank has {} candidates of a kernel, another {}",
                                    mine.candidates.size(), one.candidates.size()));
    }
    decided = encode_result(join_results(each));
  }
  return value_or_throw(decode_result(ranks.broadcast(decided)));
}

std::optional<Choice> choose_of(const RaceResult& joined) {
  std::vector<std::optional<double>> racing;
  std::vector<std::optional<double>> all;
  for (const CandidateTimes& candidate : joined.candidates) {
    all.push_back(candidate.time_us);
    racing.push_back(candidate.dropped_after == 0 ? candidate.time_us : std::nullopt);
  }
  auto choice = choose(racing, joined.noise);
  return choice ? choice : choose(all, joined.noise);
}

std::string encode_result(const RaceResult& result) {
  ByteWriter out;
  out.text(result.failure);
  out.u64(result.complete ? 1 : 0);
  out.u64(std::bit_cast<std::uint64_t>(result.noise));
  out.u64(result.candidates.size());
  for (const CandidateTimes& candidate : result.candidates) {
    out.u64(candidate.time_us ? 1 : 0);
    out.u64(std::bit_cast<std::uint64_t>(candidate.time_us.value_or(0)));
    out.u64(static_cast<std::uint64_t>(candidate.dropped_after));
    out.u64(candidate.barred ? 1 : 0);
    out.text(candidate.reason);
  }
  return out.take();
}

Result<RaceResult> decode_result(std::string_view bytes) {
  ByteReader in(bytes);
  RaceResult result;
  result.failure = in.text();
  result.complete = in.u64() == 1;
  result.noise = std::bit_cast<double>(in.u64());
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    CandidateTimes candidate;
    const bool has_time = in.u64() == 1;
    const double time_us = std::bit_cast<double>(in.u64());
    if (has_time) candidate.time_us = time_us;
    candidate.dropped_after = static_cast<int>(in.u64());
    candidate.barred = in.u64() == 1;
    candidate.reason = in.text();
    result.candidates.push_back(std::move(candidate));
  }
  if (!in.done()) return fail(ErrorCode::corrupt, "a rank's tuning result is malformed");
  return result;
}

}  // namespace ingot
