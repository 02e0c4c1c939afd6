#include "src/checkpoint/checkpoint.hpp"

#include <catch2/catch.hpp>
#include <ctime>

#include "src/weights/open_checkpoint.hpp"
#include "tests/support/made_checkpoint.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::string golden(const std::string& name) {
  return test::read_file(test::golden_dir() / "checkpoint" / name);
}

}  // namespace

TEST_CASE("a V4-Flash checkpoint of 46 shards opens complete in well under a second",
          "[cpu][checkpoint]") {
  const test::TempDir dir;
  const bool with_index = GENERATE(false, true);
  test::write_sparse_checkpoint(dir.path(), golden("deepseek-v4-flash.json"), 46, with_index);
  const std::clock_t start = std::clock();  // not wall time: tests share the machine with others
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(dir.path()));
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK(checkpoint.tensors().size() == 69187);
  CHECK(checkpoint.shards().size() == 46);
  std::uint64_t bytes = 0;
  for (const TensorView& tensor : checkpoint.tensors())
    bytes += tensor.bytes.size();
  CHECK(bytes == 159'609'485'896);
  CAPTURE(seconds);
  if (!test::kSanitized) CHECK(seconds < 1);
}
