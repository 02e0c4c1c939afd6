#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <stdexcept>

#include "tests/support/temp_dir.hpp"
#include "tools/mla_bench/run.hpp"

using namespace ingot;
using namespace ingot::bench;

namespace {

constexpr std::size_t kFaulty = 3, kWrong = 5;
double made_up_us(std::size_t candidate, bool thoroughly) {
  const double us = 5 + static_cast<double>((candidate + 11) * 37 % 101) / 10;
  // A short measurement mistakes the two fastest for each other by a little.
  return thoroughly || us > 6 ? us : us + 0.01 * static_cast<double>(candidate % 7);
}

/// A measuring process on a card that does not exist.
std::string answer(const std::string& frame) {
  const MlaQuestion question = decode_question(frame);
  if (question.kind == MlaQuestion::Kind::card)
    return encode(MlaCard{"made-up card", {0.5, 0.6}, {{1e5, 1.3}, {1e8, 24}}});
  if (question.kind == MlaQuestion::Kind::simt) return encode_us(250);
  if (question.candidate == kFaulty) throw std::runtime_error("an illegal address");
  MlaOutcome outcome;
  if (question.candidate == kWrong) outcome.error = "wrong: relative error 1.00e+00";
  outcome.relative_error = 2e-3;
  outcome.timing.median_us = made_up_us(question.candidate, question.thoroughly);
  if (question.thoroughly) outcome.early = outcome.timing;
  return encode(outcome);
}

MlaRun::Settings settings_in(const test::TempDir& folder, const std::string& only) {
  return {.out = folder.path() / "out.jsonl",
          .only = only,
          .child = {.command = {"/proc/self/exe", "fake-measure"}},
          .prepare = [](const std::vector<jit::Variant>&) {}};
}

}  // namespace

int ingot_test_hidden_command(int, char** argv) {
  if (std::strcmp(argv[1], "fake-measure") != 0) return -1;
  return answer_questions(Subprocess::kChildChannel, answer);
}

TEST_CASE("a bench run finds the fastest candidate around a faulty and a wrong one",
          "[cpu][tools]") {
  const test::TempDir folder;
  auto settings = settings_in(folder, "h8 B1 128+512");
  std::set<std::string> prepared;
  settings.prepare = [&](const std::vector<jit::Variant>& variants) {
    for (const auto& variant : variants)
      prepared.insert(jit::describe(variant));
  };
  CHECK_FALSE(MlaRun(settings).all());  // something was wrong, and says so
  const MlaResults results(settings.out);
  CHECK(results.card().name == "made-up card");
  const auto rows = results.rows();
  const auto cells = mla_cells();
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  std::set<std::size_t> screened, finals;
  for (const MlaRow& row : rows) {
    CAPTURE(row.stage, row.candidate, row.layout, row.error);
    CHECK(cells[row.cell].name() == "h8 B1 128+512");
    CHECK(prepared.contains(
        jit::describe(mla_candidates(cells[row.cell], row.layout, limits)[row.candidate].variant)));
    if (row.candidate == kFaulty) CHECK(row.error == "exit status 3: an illegal address");
    if (row.candidate == kWrong) CHECK(row.error == "wrong: relative error 1.00e+00");
    CHECK(row.error.empty() == (row.candidate != kFaulty && row.candidate != kWrong));
    if (row.layout == 0) (row.stage == "final" ? finals : screened).insert(row.candidate);
  }
  const auto all = mla_candidates(cells[rows.front().cell], 0, limits);
  REQUIRE(all.size() > 10);
  CHECK(screened.size() == all.size());
  std::size_t fastest = 0;
  for (const std::size_t candidate : screened)
    if (candidate != kFaulty && candidate != kWrong &&
        made_up_us(candidate, true) < made_up_us(fastest, true))
      fastest = candidate;
  CHECK(finals.contains(fastest));
  CHECK(finals.contains(0));  // the default
  CHECK(finals.size() <= 5);
  CHECK_FALSE(finals.contains(kFaulty));
  // Its parameters in the other layout too.
  CHECK(std::any_of(rows.begin(), rows.end(), [&](const MlaRow& row) {
    return row.layout == 1 && row.candidate == fastest && row.stage == "final";
  }));
}

TEST_CASE("a bench run's own process opens neither driver nor compiler", "[cpu][tools]") {
  const test::TempDir folder;
  const auto settings = settings_in(folder, "h8 B2 128+512");
  (void)MlaRun(settings).all();
  CHECK(MlaResults(settings.out).rows().size() > 5);
  const std::string maps = test::read_file("/proc/self/maps");
  CHECK_THAT(maps, !Catch::Contains("libcuda.so"));
  CHECK_THAT(maps, !Catch::Contains("libnvrtc"));
}

TEST_CASE("a bench run that is cut off has kept what it measured", "[cpu][tools]") {
  const test::TempDir folder;
  auto settings = settings_in(folder, "h64 B1 ");
  settings.child.most_lost = 1;  // the faulty candidate ends the run
  CHECK_FALSE(MlaRun(settings).all());
  const auto rows = MlaResults(settings.out).rows();
  CHECK(rows.size() >= 2);
  CHECK(std::count_if(rows.begin(), rows.end(), [](const MlaRow& row) {
          return row.error.find("illegal address") != std::string::npos;
        }) == 1);
}

TEST_CASE("candidates have the same places in every layout", "[cpu][tools]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  for (const MlaCell& cell : mla_cells()) {
    const auto first = mla_candidates(cell, 0, limits);
    const auto other = mla_candidates(cell, 1, limits);
    CAPTURE(cell.name());
    REQUIRE(other.size() == first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      const auto brief = [](const MlaCandidate& c) {
        return c.brief().substr(0, c.brief().rfind(' '));
      };
      REQUIRE(brief(other[i]) == brief(first[i]));
    }
  }
}
