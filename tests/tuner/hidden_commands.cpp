// The children of this suite's tests are this program run again.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "tests/tuner/answering_child.hpp"
#include "tests/tuner/fake_bench.hpp"
#include "tests/tuner/tuning_fixture.hpp"
#include "tuner/trial_worker.hpp"
#include "tuner/tune.hpp"
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

/// Says that it begins, tunes `count` problems in a folder with a made-up stopwatch and says how
/// far it came.
int tune_made_up(const std::filesystem::path& directory, int count) {
  (void)write_frame(Subprocess::kChildChannel, "begun");
  std::vector<TuningRequest> requests;
  for (int rows = 1; rows <= count; ++rows)
    requests.push_back(test::tuning_request(rows));
  const auto kernels = test::tuning_kernels(directory / "kernels");
  TuningStore records(std::vector{directory / "tuning"});
  test::FakeClock clock;
  test::FakeBench bench(clock);
  SingleRank alone;
  const auto report =
      tune(requests, *kernels, bench, records, alone,
           {.device = test::tuning_device(), .policy = "p", .now_s = clock.reader()});
  fmt::print("{}\n", report.coverage());
  return 0;
}

}  // namespace

int ingot_test_hidden_command(int argc, char** argv) {
  const std::string command = argv[1];
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  if (command == "write-records") return write_records(arguments[0], std::stoi(arguments[1]));
  if (command == "tune") return tune_made_up(arguments[0], std::stoi(arguments[1]));
  if (command == "answer") return test::answering_child();
  if (command == "fake-trials") {
    test::FakeRunner runner;
    return serve_trials(Subprocess::kChildChannel, runner);
  }
  return -1;
}
