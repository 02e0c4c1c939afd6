#include "tuner/problem.hpp"

#include <catch2/catch.hpp>

#include "tuner/tuning_request.hpp"

using namespace ingot;

namespace {

struct Problem {
  std::array<int, 2> rows{1, 2};
  long long bytes = 1LL << 40;
  bool x_bf16 = false;
  bool operator==(const Problem&) const = default;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, bytes, x_bf16] = self;
    visit("rows", rows);
    visit("bytes", bytes);
    visit("x_bf16", x_bf16);
  }
};

}  // namespace

TEST_CASE("a problem becomes named numbers and comes back from them", "[cpu][tuner]") {
  const Problem problem{{3, 4}, 1LL << 41, true};
  const auto fields = problem_fields(problem);
  CHECK(describe(fields) == "rows0=3 rows1=4 bytes=2199023255552 x_bf16=1");
  CHECK(problem_from<Problem>(fields) == problem);
  auto renamed = fields;
  renamed[2].name = "bits";
  CHECK_FALSE(problem_from<Problem>(renamed));
  CHECK_FALSE(problem_from<Problem>(std::span(fields).first(3)));
  auto longer = fields;
  longer.push_back({"more", 1});
  CHECK_FALSE(problem_from<Problem>(longer));
}

TEST_CASE("a request's space digest changes with every candidate, their order and the rejections",
          "[cpu][tuner]") {
  const auto variant = [](const char* family, int n) {
    return jit::Variant{family, {{"int", "N", n}}};
  };
  const TuningRequest request{.problem = {{"rows", 4}},
                              .candidates = {variant("a", 1), variant("a", 2), variant("b", 1)},
                              .rejections = {{"a: too big", 3}}};
  CHECK(request.title() == "a+b rows=4");
  CHECK(request.has_candidate(variant("b", 1)));
  CHECK_FALSE(request.has_candidate(variant("b", 2)));
  auto other = request;
  CHECK(other.space_digest() == request.space_digest());
  std::swap(other.candidates[1], other.candidates[2]);
  CHECK(other.space_digest() != request.space_digest());
  other = request;
  other.candidates[1].params[0].value = 3;
  CHECK(other.space_digest() != request.space_digest());
  other = request;
  other.rejections["a: too big"] = 4;
  CHECK(other.space_digest() != request.space_digest());
}
