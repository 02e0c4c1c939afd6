#include "tuner/tuning_store.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/hash.hpp"
#include "runtime/base/subprocess.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::made_record;
using test::tuning_key;
using test::tuning_request;

namespace {

std::filesystem::path only_file(const std::filesystem::path& directory) {
  const auto files = TuningCache(directory).files();
  REQUIRE(files.size() == 1);
  return files[0].path;
}

/// `body` as a record's file, under a right digest.
std::string sealed(const std::string& body) {
  return "{\"digest\":\"" + digest_of(body).hex() + "\",\"record\":" + body + "}\n";
}

std::string body_of(const std::string& bytes) {
  const std::size_t begin = bytes.find(",\"record\":") + 10;
  return bytes.substr(begin, bytes.size() - 2 - begin);
}

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a record is written and read back whole", "[cpu][tuner][cache]") {
  TuningRecord record = made_record();
  record.candidates[0].standing = Standing::tie;
  record.candidates[1].standing = Standing::barred;
  record.candidates[1].reason = "edge case \"empty row\": lse[3] is not written\n\xff";
  record.candidates[3].standing = Standing::unmeasured;
  record.candidates[3].samples_us.clear();
  record.complete = false;
  const std::string bytes = encode_record(record);
  CHECK(lines_in(bytes) == 1);
  const auto read = decode_record(bytes, "x");
  REQUIRE(read);
  record.candidates[1].reason = "edge case \"empty row\": lse[3] is not written\n\xef\xbf\xbd";
  CHECK(*read == record);
  CHECK(read->chosen().variant == tuning_request().candidates[2]);
  CHECK(made_record().gain() == Approx(2.025));
  CHECK(encode_record(*read) == encode_record(record));
}

TEST_CASE("tuner: a truncated file counts as missing, with one warning", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  TuningStore(std::vector{folder.path()}).save(made_record());
  const auto file = only_file(folder.path());
  const std::string good = test::read_file(file);
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    REQUIRE_FALSE(decode_record(good.substr(0, cut), "x"));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    REQUIRE_FALSE(decode_record(damaged, "x"));
  }
  REQUIRE_FALSE(decode_record(good + "x", "x"));
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string()}) {
    test::write_file(file, bad);
    const std::string said = test::standard_error_of([&] {
      TuningStore store(std::vector{folder.path()});
      CHECK_FALSE(store.find(tuning_key()));
      CHECK_FALSE(store.find(tuning_key()));
    });
    CHECK(lines_in(said) == 1);
    CHECK_THAT(said, Catch::Contains(file.string()) && Catch::Contains("it counts as missing"));
  }
  // The next tuning replaces it.
  TuningStore(std::vector{folder.path()}).save(made_record());
  CHECK(test::read_file(file) == good);
}

TEST_CASE("tuner: a file from another schema counts as missing, with one warning",
          "[cpu][tuner][cache]") {
  const test::TempDir folder;
  TuningStore(std::vector{folder.path()}).save(made_record());
  const auto file = only_file(folder.path());
  std::string body = body_of(test::read_file(file));
  body.replace(body.find("\"schema\":1"), 10, "\"schema\":2");
  test::write_file(file, sealed(body));
  const std::string said = test::standard_error_of([&] {
    TuningStore store(std::vector{folder.path()});
    CHECK_FALSE(store.find(tuning_key()));
    CHECK_FALSE(store.find(tuning_key()));
  });
  CHECK(lines_in(said) == 1);
  CHECK_THAT(said, Catch::Contains("its format is 2, this program's is 1"));
}

TEST_CASE("content that no record has is refused under a right digest", "[cpu][tuner][cache]") {
  const std::string good = body_of(encode_record(made_record()));
  REQUIRE(decode_record(sealed(good), "x"));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string body = good;
    const std::size_t at = body.find(from);
    REQUIRE(at != std::string::npos);
    body.replace(at, from.size(), to);
    const auto record = decode_record(sealed(body), "x");
    CAPTURE(to);
    REQUIRE_FALSE(record);
    CHECK(record.error().code == ErrorCode::corrupt);
  };
  refused("\"chosen\"", "\"slower\"");  // nobody
  refused("\"slower\"", "\"chosen\"");  // two
  refused("\"slower\"", "\"slow\"");
  refused("\"time_us\":10.0", "\"time_us\":-1");
  refused("\"time_us\":10.0", "\"time_us\":\"10\"");
  refused("\"time_us\":10.0,", "");
  refused("\"TILE\":32", "\"TILE\":32.5");
  refused("schema 1", "schema 3");
  refused("\"candidates\":[", "\"candidates\":{},\"x\":[");
  CHECK(decode_record(sealed("[]"), "x").error().code == ErrorCode::corrupt);
  CHECK(decode_record(sealed(std::string(100000, '[')), "x").error().code == ErrorCode::corrupt);
}

TEST_CASE("a record under another key's name is damaged", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  const TuningCache cache(folder.path());
  REQUIRE(cache.publish(made_record()));
  const auto other = cache.directory() / TuningCache::file_name(tuning_key(tuning_request(2)));
  std::filesystem::rename(only_file(folder.path()), other);
  CHECK(TuningCache::read(other).error().code == ErrorCode::corrupt);
  CHECK(cache.collect({}).damaged == 1);
  CHECK(cache.files().empty());
}

TEST_CASE("records are found in layers, the first that is complete", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  const auto mine = folder / "mine";
  const auto shared = folder / "shared";
  TuningRecord partial = made_record(tuning_request(), 1);
  partial.complete = false;
  REQUIRE(TuningCache(shared).publish(made_record(tuning_request(), 2)));
  TuningStore store(std::vector{mine, shared});
  CHECK(store.find(tuning_key())->chosen().variant == tuning_request().candidates[2]);
  REQUIRE(TuningCache(mine).publish(partial));
  CHECK(store.find(tuning_key())->complete);
  REQUIRE(TuningCache(mine).publish(made_record(tuning_request(), 3)));
  CHECK(store.find(tuning_key())->chosen().variant == tuning_request().candidates[3]);
  CHECK(store.all().size() == 1);
  CHECK(TuningCache(shared).files().size() == 1);
  CHECK_FALSE(store.find(tuning_key(tuning_request(5))));
}

TEST_CASE("tuner: an unknown driver version is a key of its own", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  TuningStore store(std::vector{folder.path()});
  TuningRecord record = made_record();
  record.key.device.driver_branch = "unknown";
  CHECK(store.save(record));
  CHECK(store.find(record.key));
  CHECK_FALSE(store.find(tuning_key()));
  CHECK_THAT(store.explain(tuning_key()).at(1),
             Catch::Contains("driver: wanted 580, the record has unknown"));
}

TEST_CASE("another compiler's record serves only where there is no choice", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  REQUIRE(TuningCache(folder.path()).publish(made_record()));
  TuningKey newer = tuning_key();
  newer.compiler = {"13.1", "fake"};
  CHECK_FALSE(TuningStore(std::vector{folder.path()}).find(newer));
  CHECK(TuningStore(std::vector{folder.path()}, true).find(newer));
  newer.tp_size = 2;
  CHECK_FALSE(TuningStore(std::vector{folder.path()}, true).find(newer));
}

TEST_CASE("a look-up is explained by the nearest record", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  TuningStore store(std::vector{folder.path()});
  CHECK_THAT(store.explain(tuning_key()).at(0), Catch::StartsWith("miss: no tuning record in "));
  REQUIRE(store.save(made_record()));
  CHECK_THAT(store.explain(tuning_key()).at(0), Catch::StartsWith("hit: "));
  TuningKey elsewhere = tuning_key();
  elsewhere.device.name = "NVIDIA H100 PCIe";
  elsewhere.device.sm_count = 114;
  const auto lines = store.explain(elsewhere);
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[1], Catch::Contains("device: wanted NVIDIA H100 PCIe, the record has NVIDIA "
                                       "H200"));
  CHECK_THAT(lines[2], Catch::Contains("multiprocessors: wanted 114, the record has 132"));
}

TEST_CASE("without a folder, or in one that cannot be written, records live in memory",
          "[cpu][tuner][cache]") {
  const test::TempDir folder;
  test::write_file(folder / "file", "no folder");
  for (const auto& directories : {std::vector<std::filesystem::path>{},
                                  std::vector<std::filesystem::path>{folder / "file/tuning"}}) {
    const std::string said = test::standard_error_of([&] {
      TuningStore store(directories);
      CHECK_FALSE(store.save(made_record()));
      CHECK_FALSE(store.save(made_record(tuning_request(2))));
      CHECK(store.find(tuning_key()));
    });
    CHECK(lines_in(said) == 1);
  }
}

TEST_CASE("tuner: eight writers at one instant leave whole records", "[cpu][tuner][stress]") {
  const test::TempDir folder;
  for (int round = 0; round < 5; ++round) {
    std::vector<Subprocess> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(value_or_throw(
          Subprocess::spawn({"/proc/self/exe", "write-records", (folder / "t").string(), "20"})));
    }
    for (auto& child : children)
      REQUIRE(write_frame(child.channel(), "go"));
    for (auto& child : children) {
      const auto end = child.wait();
      CAPTURE(child.output_tail());
      REQUIRE(end.exit_status == 0);
    }
    const TuningCache cache(folder / "t");
    REQUIRE(cache.files().size() == 20);
    for (const CacheFile& file : cache.files())
      REQUIRE(TuningCache::read(file.path));
    CHECK(cache.collect({.temporary_age = std::chrono::seconds(-1)}).temporaries == 0);
  }
}

TEST_CASE("collecting removes damaged and old records", "[cpu][tuner][cache]") {
  const test::TempDir folder;
  const TuningCache cache(folder.path());
  for (int rows = 1; rows <= 3; ++rows)
    REQUIRE(cache.publish(made_record(tuning_request(rows))));
  const auto files = cache.files();
  test::write_file(files[0].path, "damaged");
  std::filesystem::last_write_time(
      files[1].path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 100));
  const auto result = cache.collect({});
  CHECK(result.damaged == 1);
  CHECK(result.removed == 2);
  CHECK(result.kept == 1);
}
