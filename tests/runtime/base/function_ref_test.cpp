#include "runtime/base/function_ref.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace ingot;

namespace {

int call(FunctionRef<int(int)> function, int value) {
  return function(value);
}

}  // namespace

TEST_CASE("a function reference calls what it refers to, and changes that", "[cpu][base]") {
  int sum = 0;
  auto add = [&sum, calls = 0](int value) mutable {
    sum += value;
    return ++calls;
  };
  const FunctionRef<int(int)> reference = add;
  const FunctionRef<int(int)> copy = reference;  // of the reference: both call `add`
  CHECK(reference(3) == 1);
  CHECK(copy(4) == 2);
  CHECK(add(5) == 3);
  CHECK(sum == 12);
  CHECK(call([](int value) { return value + 1; }, 41) == 42);
}

TEST_CASE("a function reference hands arguments on without copies", "[cpu][base]") {
  std::string text = "text";
  const auto append = [](std::string& to, std::string&& more) { to += std::move(more); };
  const FunctionRef<void(std::string&, std::string &&)> reference = append;
  reference(text, " and more");
  CHECK(text == "text and more");
}
