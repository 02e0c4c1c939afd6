#include "runtime/jit/bundle.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/subprocess.hpp"
#include "tests/runtime/jit/store_fixture.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::make_store;
using test::request;

namespace {

std::shared_ptr<jit::Compiler> fake() {
  return std::make_shared<test::FakeCompiler>();
}

std::vector<jit::CubinCache> layers_of(const std::filesystem::path& directory) {
  return {jit::CubinCache(directory)};
}

Result<jit::ImportResult> import_bundle(const std::filesystem::path& file,
                                        const jit::CubinCache& cache) {
  const auto bundle = jit::read_bundle(file);
  if (!bundle) return tl::unexpected(bundle.error());
  return jit::import_kernels(*bundle, cache);
}

/// A bundle with arbitrary content under a right checksum.
std::string sealed(std::uint64_t schema, const std::string& content) {
  ByteWriter out;
  out.u64(schema);
  out.text(zstd_compress(content, 3));
  std::string bytes = "ingot-bundle\n" + out.take();
  const Digest digest = digest_of(bytes);
  return bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
}

}  // namespace

TEST_CASE("a bundle carries a cache to another folder, where everything hits",
          "[cpu][jit][bundle]") {
  const test::TempDir from;
  const test::TempDir to;
  auto first = make_store({from / "kernels"}, fake());
  for (int i = 0; i < 5; ++i)
    REQUIRE(first.get(request(i)));
  jit::KernelRequest bad{.variant = {.family = "k", .params = {{"int", "FAIL", 1}}},
                         .arch = "sm_80"};
  REQUIRE_FALSE(first.get(bad));
  const auto file = to / "kernels.bundle";
  const auto exported = jit::export_bundle(layers_of(from / "kernels"), {}, file);
  REQUIRE(exported);
  CHECK(exported->kernels == 5);
  CHECK(exported->bars == 1);
  CHECK(exported->bundle_bytes == std::filesystem::file_size(file));

  const jit::CubinCache target(to / "elsewhere/kernels");
  const auto imported = import_bundle(file, target);
  REQUIRE(imported);
  CHECK(imported->added == 6);
  CHECK(test::damage_in(target.directory()).empty());
  auto second = make_store({target.directory()}, fake());
  for (int i = 0; i < 5; ++i)
    REQUIRE(second.get(request(i)));
  CHECK_FALSE(second.get(bad));
  CHECK(second.stats().hits == 5);
  CHECK(second.stats().barred == 1);
  CHECK(second.stats().compiled == 0);
  for (const auto& original : jit::CubinCache(from / "kernels").files()) {
    const auto copy = target.directory() / original.path.filename().string();
    CHECK(test::read_file(copy) == test::read_file(original.path));
  }

  const auto again = import_bundle(file, target);
  REQUIRE(again);
  CHECK(again->added == 0);
  CHECK(again->known == 6);
}

TEST_CASE("an export takes the architectures that are asked for and leaves out what is damaged",
          "[cpu][jit][bundle]") {
  const test::TempDir folder;
  auto store = make_store({folder.path()}, fake());
  auto other = request(1);
  other.arch = "sm_120a";
  REQUIRE(store.get(request(1)));
  REQUIRE(store.get(request(2)));
  REQUIRE(store.get(other));
  const auto file = folder / "out.bundle";
  CHECK(jit::export_bundle(layers_of(folder.path()), {"sm_120a"}, file)->kernels == 1);
  CHECK(jit::export_bundle(layers_of(folder.path()), {"sm_90a"}, file).error().code ==
        ErrorCode::not_found);
  test::write_file(jit::CubinCache(folder.path()).files()[0].path, "damaged");
  const auto exported = jit::export_bundle(layers_of(folder.path()), {}, file);
  REQUIRE(exported);
  CHECK(exported->kernels == 2);
  CHECK(exported->damaged == 1);
}

TEST_CASE("a bundle that is cut off, changed or newer imports nothing", "[cpu][jit][bundle]") {
  const test::TempDir folder;
  auto store = make_store({folder / "kernels"}, fake());
  REQUIRE(store.get(request(1)));
  const auto file = folder / "k.bundle";
  REQUIRE(jit::export_bundle(layers_of(folder / "kernels"), {}, file));
  const std::string good = test::read_file(file);
  const jit::CubinCache target(folder / "target");

  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    REQUIRE_FALSE(jit::decode_bundle(good.substr(0, cut), "b"));
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    REQUIRE_FALSE(jit::decode_bundle(damaged, "b"));
  }
  test::write_file(file, good.substr(0, good.size() / 2));
  const auto cut = import_bundle(file, target);
  REQUIRE_FALSE(cut);
  CHECK(cut.error().code == ErrorCode::corrupt);
  CHECK_THAT(cut.error().message, Catch::Contains(file.string()));

  test::write_file(file, sealed(3, "anything"));
  const auto newer = import_bundle(file, target);
  REQUIRE_FALSE(newer);
  CHECK(newer.error().code == ErrorCode::unsupported);
  CHECK_THAT(newer.error().message, Catch::Contains("its format is 3, this program reads 2: made "
                                                    "by a newer ingot"));
  test::write_file(file, sealed(1, "anything"));
  const auto older = import_bundle(file, target);
  REQUIRE_FALSE(older);
  CHECK(older.error().code == ErrorCode::unsupported);
  CHECK_THAT(older.error().message,
             Catch::Contains("its format is 1, this program reads 2: made by an older ingot, which "
                             "had no tuning choices in it; export the cache again"));
  CHECK(import_bundle(folder / "absent", target).error().code == ErrorCode::not_found);
  CHECK(target.files().empty());
}

TEST_CASE("an entry whose name or family leads out of the folder is refused",
          "[cpu][jit][bundle]") {
  const test::TempDir folder;
  auto store = make_store({folder / "kernels"}, fake());
  const auto entry = store.get(request(1));
  REQUIRE(entry);
  const jit::CubinCache target(folder / "target");
  const auto file = folder / "evil.bundle";

  ByteWriter renamed;  // a good entry under a bad name, after a good one
  renamed.u64(2);
  renamed.text(jit::CubinCache::file_name((*entry)->manifest));
  renamed.text(jit::encode_entry(**entry, jit::Packing::plain));
  renamed.text("../../escaped.kernel");
  renamed.text(jit::encode_entry(**entry, jit::Packing::plain));
  renamed.u64(0);
  test::write_file(file, sealed(2, renamed.take()));
  const auto by_name = import_bundle(file, target);
  REQUIRE_FALSE(by_name);
  CHECK(by_name.error().code == ErrorCode::corrupt);
  CHECK_THAT(by_name.error().message, Catch::Contains("../../escaped.kernel"));

  jit::CacheEntry evil = **entry;  // a manifest from which a bad name follows
  evil.manifest.family = "../../escaped";
  test::write_file(file, jit::encode_bundle({.kernels = {evil}}));
  const auto by_family = import_bundle(file, target);
  REQUIRE_FALSE(by_family);
  CHECK(by_family.error().code == ErrorCode::corrupt);
  CHECK(target.files().empty());  // not even the good entry
  CHECK_FALSE(std::filesystem::exists(folder.path().parent_path() / "escaped.kernel"));
}

TEST_CASE("a bundle carries another cache's files, by plain names alone", "[cpu][jit][bundle]") {
  const test::TempDir folder;
  const auto file = folder / "f.bundle";
  const std::vector<jit::BundleFile> files{{"a-1.tuning", "one"}, {"b.tuning", ""}};
  const auto exported = jit::export_bundle({}, {}, file, files);
  REQUIRE(exported);
  CHECK(exported->files == 2);
  CHECK(exported->kernels == 0);
  CHECK(jit::read_bundle(file)->files == files);
  for (const char* name : {"../a", "/a", "a/b", ".hidden", "", "a\nb"}) {
    const auto bundle = jit::decode_bundle(jit::encode_bundle({.files = {{name, "x"}}}), "b");
    CAPTURE(name);
    REQUIRE_FALSE(bundle);
    CHECK(bundle.error().code == ErrorCode::corrupt);
  }
}

TEST_CASE("another user imports a bundle in another folder", "[cpu][jit][bundle]") {
  const test::TempDir folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0777));
  auto store = make_store({folder / "kernels"}, fake());
  for (int i = 0; i < 3; ++i)
    REQUIRE(store.get(request(i)));
  const auto file = folder / "k.bundle";
  REQUIRE(jit::export_bundle(layers_of(folder / "kernels"), {}, file));
  auto child = value_or_throw(Subprocess::spawn(
      {"/proc/self/exe", "import-as-nobody", file.string(), (folder / "nobodys").string(), "3"}));
  const auto end = child.wait();
  if (end.exit_status == 77 && test::skip("cannot become another user here")) return;
  CAPTURE(child.output_tail());
  CHECK(end.exit_status == 0);
  CHECK_THAT(child.output_tail(), Catch::Contains("hits 3 compiled 0"));
}
