#include "runtime/base/error.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

TEST_CASE("bad input exits with 2 and failures at work with 1", "[cpu][base]") {
  CHECK(exit_status(ErrorCode::invalid_argument) == 2);
  CHECK(exit_status(ErrorCode::not_found) == 2);
  CHECK(exit_status(ErrorCode::corrupt) == 2);
  CHECK(exit_status(ErrorCode::unsupported) == 2);
  CHECK(exit_status(ErrorCode::io) == 1);
  CHECK(exit_status(ErrorCode::cuda) == 1);
}

TEST_CASE("a failed result carries code, message and the line that failed", "[cpu][base]") {
  const auto attempt = []() -> Result<int> { return fail(ErrorCode::corrupt, "reading x: torn"); };
  const Result<int> result = attempt();
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::corrupt);
  CHECK(result.error().message == "reading x: torn");
  CHECK(std::string_view(result.error().where.file_name()).ends_with("error_test.cpp"));
}

TEST_CASE("value_or_throw hands on the value or throws the error", "[cpu][base]") {
  CHECK(value_or_throw(Result<int>(7)) == 7);
  CHECK_THROWS_AS(value_or_throw(Result<int>(fail(ErrorCode::io, "no"))), EngineError);
  CHECK_THROWS_AS(value_or_throw(Result<void>(fail(ErrorCode::io, "no"))), EngineError);
}
