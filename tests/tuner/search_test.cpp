#include "tuner/search.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "tuner/choose.hpp"

using namespace ingot;

namespace {

constexpr double kNoLimit = 1e9;

/// Runs a search to its end; every sample costs 0.01 s. Returns whom it asked for, in order.
std::vector<std::size_t> run(Search& search, const std::function<double(std::size_t)>& time_us) {
  std::vector<std::size_t> asked;
  while (const auto next = search.next()) {
    asked.push_back(*next);
    const double time = time_us(*next);
    if (time > 0) {
      search.add(time, 0.01);
    } else {
      search.bar(0.01);
    }
  }
  return asked;
}

std::vector<std::optional<double>> times_of(const Search& search) {
  std::vector<std::optional<double>> times;
  for (const Course& course : search.courses()) {
    times.push_back(course.is_racing() ? std::optional(course.best_us()) : std::nullopt);
  }
  return times;
}

}  // namespace

TEST_CASE("a search measures candidates in rounds and drops those a quarter behind",
          "[cpu][tuner]") {
  Search search(4, {.min_rounds = 2, .max_rounds = 3}, kNoLimit);
  const auto asked =
      run(search, [](std::size_t i) { return i == 1 ? 126.0 : 100.0 + 3 * double(i); });
  // 1 is out after the first round; 2 and 3 are 6 and 9 % behind, which is more than four times the
  // least noise, and out after the last of the rounds that everybody gets.
  CHECK(asked == std::vector<std::size_t>{0, 1, 2, 3, 0, 2, 3});
  CHECK(search.courses()[1].dropped_after == 1);
  CHECK(search.courses()[2].dropped_after == 2);
  CHECK(search.courses()[3].dropped_after == 2);
  CHECK(search.courses()[0].is_racing());
  CHECK(search.complete());
  CHECK(search.rounds() == 2);
}

TEST_CASE("a close race goes on to the last round, a decided one ends early", "[cpu][tuner]") {
  Search close(2, {}, kNoLimit);
  CHECK(run(close, [](std::size_t i) { return 100.0 + double(i); }).size() == 20);
  CHECK(close.rounds() == 10);
  Search decided(2, {}, kNoLimit);
  CHECK(run(decided, [](std::size_t i) { return i == 0 ? 100.0 : 110.0; }).size() == 6);
  CHECK(decided.complete());
}

TEST_CASE("a search keeps every sample and goes by the minimum", "[cpu][tuner]") {
  Search search(1, {.min_rounds = 3, .max_rounds = 3}, kNoLimit);
  double next = 12;
  run(search, [&](std::size_t) { return next--; });
  CHECK(search.courses()[0].samples_us == std::vector<double>{12, 11, 10});
  CHECK(search.courses()[0].best_us() == 10);
}

TEST_CASE("a budget ends a search at once, and a budget of zero before it begins", "[cpu][tuner]") {
  Search none(3, {}, 0);
  CHECK_FALSE(none.next());
  CHECK(none.out_of_budget());
  CHECK_FALSE(none.complete());
  Search some(3, {}, 0.035);
  CHECK(run(some, [](std::size_t) { return 100.0; }).size() == 4);
  CHECK(some.out_of_budget());
  CHECK(some.rounds() == 1);
}

TEST_CASE("a barred candidate is never asked for again, and a race of nobody ends",
          "[cpu][tuner]") {
  Search search(3, {.min_rounds = 2, .max_rounds = 2}, kNoLimit);
  CHECK(run(search, [](std::size_t i) { return i == 0 ? 0.0 : 100.0; }) ==
        std::vector<std::size_t>{0, 1, 2, 1, 2});
  CHECK(search.courses()[0].barred);
  Search nobody(2, {}, kNoLimit);
  CHECK(run(nobody, [](std::size_t) { return 0.0; }) == std::vector<std::size_t>{0, 1});
  CHECK(nobody.complete());
  CHECK(Search(0, {}, kNoLimit).complete());
}

TEST_CASE("noise is the spread of the racing candidates' samples over their root", "[cpu][tuner]") {
  const Course still{.samples_us = {100, 100, 100, 100}};
  const Course shaky{.samples_us = {100, 104, 100, 104}};
  const Course lost{.samples_us = {100, 200, 100, 200}, .dropped_after = 4};
  CHECK(noise_of(std::vector<Course>{}) == kLeastNoise);
  CHECK(noise_of(std::vector<Course>{still}) == kLeastNoise);
  // 10th percentile 100, 90th 104, median 102, four samples.
  CHECK(noise_of(std::vector<Course>{shaky, lost}) == Approx(4.0 / 102 / 2));
}

TEST_CASE("of the candidates within the noise the first in the order is chosen", "[cpu][tuner]") {
  const std::vector<std::optional<double>> times{{110.0}, {100.9}, std::nullopt,
                                                 {100.0}, {102.9}, {103.1}};
  const auto choice = choose(times, 0.01);
  REQUIRE(choice);
  CHECK(choice->chosen == 1);
  CHECK(choice->ties == std::vector<std::size_t>{1, 3, 4});
  CHECK(choose(times, 0.001)->chosen == 3);
  CHECK(choose(times, 0.001)->ties == std::vector<std::size_t>{3});
  CHECK_FALSE(choose(std::vector<std::optional<double>>{std::nullopt}, 0.01));
}

TEST_CASE("with noise of 3 % the choice is among the best, and two tunings differ in listed ties",
          "[cpu][tuner]") {
  // Forty candidates from 100 us on, 1 % apart, in an order that is not that of their times.
  std::vector<double> truth;
  for (int i = 0; i < 40; ++i)
    truth.push_back(100.0 + (i * 17) % 40);
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(-0.03, 0.03);
  const auto tune = [&] {
    Search search(truth.size(), {}, kNoLimit);
    run(search, [&](std::size_t i) { return truth[i] * (1 + noise(random)); });
    return *choose(times_of(search), noise_of(search.courses()));
  };
  int differ = 0;
  int unlisted = 0;
  for (int round = 0; round < 200; ++round) {
    const Choice a = tune();
    const Choice b = tune();
    CHECK(truth[a.chosen] <= 106);
    differ += a.chosen != b.chosen ? 1 : 0;
    const auto lists = [](const Choice& choice, std::size_t candidate) {
      return std::find(choice.ties.begin(), choice.ties.end(), candidate) != choice.ties.end();
    };
    if (!lists(a, b.chosen) || !lists(b, a.chosen)) ++unlisted;
  }
  CHECK(differ > 0);  // else the ties were not tried
  CHECK(unlisted == 0);
}
