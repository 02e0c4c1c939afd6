#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "tuner/choose.hpp"

namespace ingot {

/// The tensor-parallel ranks that tune together, as one of them sees them. All ranks call the same
/// functions in the same order. Throws EngineError(nccl) when another rank has failed.
class RankGroup {
 public:
  virtual ~RankGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// On rank 0: what each rank gave, by rank. On the others: empty.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  /// What rank 0 gave, on every rank.
  virtual std::string broadcast(const std::string& of_rank_0) = 0;
};

/// One rank by itself.
class SingleRank : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  std::string broadcast(const std::string& of_rank_0) override { return of_rank_0; }
};

/// What is known of one candidate: on one rank, or, joined, on all.
struct CandidateTimes {
  std::optional<double> time_us;  ///< joined: the slowest rank's, which the others wait for
  int dropped_after = 0;          ///< the round; joined: the first of any rank
  bool barred = false;            ///< joined: on any rank
  std::string reason;             ///< why it is barred or has no time; joined: "rank 3: …"

  bool operator==(const CandidateTimes&) const = default;
};

/// What a tuning of one request found out.
struct RaceResult {
  std::vector<CandidateTimes> candidates;  ///< in the request's order
  double noise = 0;                        ///< joined: the greatest
  bool complete = true;                    ///< joined: on every rank
  std::string failure;                     ///< why it could not be tuned at all; empty: it could

  bool operator==(const RaceResult&) const = default;
};

/// Joins the results of all ranks; with several, reasons name the rank. Pure. `each` is not empty
/// and all have as many candidates.
RaceResult join_results(const std::vector<RaceResult>& each);

/// The joined result, the same on every rank: rank 0 makes it of all ranks' and broadcasts it.
RaceResult agree(RankGroup& ranks, const RaceResult& mine);

/// The choice that a joined result leads to: among the candidates that no rank has dropped, or,
/// where no such is left, among all that every rank has a time of. Pure.
std::optional<Choice> choose_of(const RaceResult& joined);

// What ranks send. Decoding fails (corrupt) on anything that encoding does not write.
std::string encode_result(const RaceResult& result);
[[nodiscard]] Result<RaceResult> decode_result(std::string_view bytes);

}  // namespace ingot
