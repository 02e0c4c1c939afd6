// The children of this suite's tests are this program run again.
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "tests/tuner/tuning_fixture.hpp"
#include "tuner/tuning_store.hpp"

using namespace ingot;

namespace {

/// Saves records of `count` problems once told to go; each must be there afterwards.
int write_records(const std::filesystem::path& directory, int count) {
  std::string frame;
  (void)read_frame(Subprocess::kChildChannel, frame);
  for (int rows = 1; rows <= count; ++rows) {
    const auto record = test::made_record(test::tuning_request(rows));
    if (!TuningStore(std::vector{directory}).save(record)) return 1;
    if (TuningStore(std::vector{directory}).find(record.key) != record) return 2;
  }
  return 0;
}

}  // namespace

int ingot_test_hidden_command(int argc, char** argv) {
  const std::string command = argv[1];
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  if (command == "write-records") return write_records(arguments[0], std::stoi(arguments[1]));
  return -1;
}
