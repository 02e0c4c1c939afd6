#include "src/weights/model_fingerprint.hpp"

#include <catch2/catch.hpp>

#include "runtime/base/atomic_publish.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

Digest fingerprint(const std::filesystem::path& model) {
  return value_or_throw(model_fingerprint(value_or_throw(open_checkpoint(model))));
}

}  // namespace

TEST_CASE("a copy of a model has its fingerprint, another model has not", "[cpu][weights]") {
  const TempDir folder;
  const Digest tiny = fingerprint(tiny_model());
  write_changed_tiny_model(folder / "copy", "head.weight", {}, 0);
  CHECK(fingerprint(folder / "copy") == tiny);
  write_changed_tiny_model(folder / "weights", "head.weight", {3}, 0);
  CHECK(fingerprint(folder / "weights") != tiny);
  write_file(folder / "copy/tokenizer.json",
             *read_whole_file(folder / "copy/tokenizer.json") + "\n");
  CHECK(fingerprint(folder / "copy") != tiny);
}
