#include "runtime/cuda/driver_api.hpp"

#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

#include "runtime/base/shared_library.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("a missing driver is an error that names the file and the package", "[cpu][cuda]") {
  if (SharedLibrary::open("libcuda.so.1") && test::skip("this machine has a driver")) return;
  const test::TempDir empty;
  const auto driver = cu::DriverApi::open({empty.path()});
  REQUIRE_FALSE(driver);
  CHECK(driver.error().code == ErrorCode::not_found);
  CHECK_THAT(driver.error().message, Catch::Contains("libcuda.so.1") &&
                                         Catch::Contains(empty.path().string()) &&
                                         Catch::Contains("install the NVIDIA driver"));
}

TEST_CASE("a file that is no library is an error that quotes the dynamic linker", "[cpu][cuda]") {
  if (SharedLibrary::open("libcuda.so.1") && test::skip("this machine has a driver")) return;
  const test::TempDir folder;
  test::write_file(folder / "libcuda.so.1", "not an ELF file");
  const auto driver = cu::DriverApi::open({folder.path()});
  REQUIRE_FALSE(driver);
  CHECK_THAT(driver.error().message, Catch::Contains((folder / "libcuda.so.1").string()) &&
                                         Catch::Contains("file too short"));
}

TEST_CASE("a driver that lacks a function is too old, and the message says what to install",
          "[cpu][cuda]") {
  if (SharedLibrary::open("libcuda.so.1") && test::skip("this machine has a driver")) return;
  // Any library will do that has none of the functions.
  Dl_info library{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&std::puts), &library) != 0);
  const test::TempDir folder;
  std::filesystem::create_symlink(std::filesystem::canonical(library.dli_fname),
                                  folder / "libcuda.so.1");
  const auto driver = cu::DriverApi::open({folder.path()});
  REQUIRE_FALSE(driver);
  CHECK(driver.error().code == ErrorCode::not_found);
  CHECK_THAT(driver.error().message,
             Catch::Contains("the driver is too old") && Catch::Contains("install version 550"));
}

TEST_CASE("every entry point of our table is exported by the toolkit's stub of the driver",
          "[cpu][cuda]") {
  const std::filesystem::path stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub) && test::skip("no stub of libcuda in the toolkit")) return;
  const test::TempDir folder;
  std::filesystem::create_symlink(stub, folder / "libcuda.so.1");
  const auto driver = cu::DriverApi::open({folder.path()});
  // The stub exports everything and runs nothing: cuInit says that it is a stub.
  REQUIRE_FALSE(driver);
  CHECK(driver.error().code == ErrorCode::cuda);
  CHECK_THAT(driver.error().message, Catch::Contains("cuInit failed"));
}
