#include "src/bench/kernel_bench.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tuner/fake_bench.hpp"
#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::tile_variant;

namespace {

/// 4 TB/s beyond 1 us, 1,000 TFLOP/s, FP8 twice that.
CardRates rates() {
  return {
      .reads = {{4e6, 2}, {8e6, 3}}, .f16_per_us = 1e9, .fp8_per_us = 2e9, .empty_node_us = 1.5};
}

struct Made {
  std::unique_ptr<jit::KernelStore> kernels = test::tuning_kernels();
  test::FakeClock clock;
  test::FakeBench bench{clock};
  TuningRequest request = test::tuning_request(16);

  KernelCell run(std::size_t running, bool all = false) {
    return measure_kernel(request, {.candidate = running, .source = Selection::Source::tuned}, 8,
                          *kernels, bench, rates(),
                          {.arch = "sm_90a", .samples = 4, .all_candidates = all});
  }
};

}  // namespace

TEST_CASE("a kernel is timed beside its default, by turns", "[cpu][bench]") {
  Made made;
  made.bench.time_us = {{jit::describe(tile_variant("mma", 32)), 40}};
  const KernelCell cell = made.run(2);
  CHECK(cell.families == "mma+simt");
  REQUIRE(cell.kernels.size() == 2);
  CHECK(cell.kernels[0].variant == tile_variant("mma", 64));
  CHECK(cell.kernels[0].us == 100);
  CHECK(cell.kernels[0].source == "default");
  CHECK(cell.kernels[1].us == 40);
  CHECK(cell.kernels[1].source == "tuned");
  CHECK(cell.running() == &cell.kernels[1]);
  CHECK(made.bench.verified == 1);
  CHECK(made.bench.measured == 2 * 4);
  // Where the default runs it is alone.
  CHECK(made.run(0).kernels.size() == 1);
}

TEST_CASE("all candidates are checked and timed, and what is wrong says so", "[cpu][bench]") {
  Made made;
  made.bench.fates = {{jit::describe(tile_variant("simt", 1)), {Trial::End::wrong}}};
  const KernelCell cell = made.run(2, true);
  REQUIRE(cell.kernels.size() == made.request.candidates.size());
  CHECK(cell.kernels[1].variant == tile_variant("mma", 32));
  int wrong = 0;
  for (const TimedKernel& one : cell.kernels)
    wrong += one.error == "as made up" ? 1 : 0;
  CHECK(wrong == 1);
  CHECK(cell.running() == &cell.kernels[1]);
  const test::TempDir folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  print_kernels(std::vector{cell}, out);
  std::fclose(out);
  const std::string text = test::read_file(folder / "out");
  CHECK_THAT(text, Catch::Contains("TP 8, mma+simt: rows=16 cols=4096, floor 1.50 us") &&
                       Catch::Contains("\ntuned") && Catch::Contains("\ncandidate") &&
                       Catch::Contains("simt TILE=1 SINK=1: as made up"));
  BenchSubject subject;
  subject.rates = rates();
  const auto line = nlohmann::json::parse(kernel_json(subject, cell));
  CHECK(line["bench"] == "kernels");
  CHECK(line["tp"] == 8);
  CHECK(line["problem"]["rows"] == 16);
  CHECK(line["kernels"].size() == cell.kernels.size());
  CHECK(line["card"]["cold_reads"].size() == 2);
}

TEST_CASE("a reference that cannot be tried leaves its cell without times", "[cpu][bench]") {
  Made made;
  made.bench.entering = {.end = Trial::End::faulted, .reason = "gone"};
  const KernelCell cell = made.run(2);
  CHECK(cell.error == "gone");
  CHECK(cell.running() == nullptr);
  CHECK(roofline_points(std::vector{cell}).empty());
}

TEST_CASE("what a kernel has to do at least follows from its problem", "[cpu][bench]") {
  const auto work = [](const char* family, std::vector<ProblemField> problem) {
    return kernel_work(family, problem);
  };
  const KernelWork linear = work("fp8_linear_sm90", {{"rows0", 1024},
                                                     {"rows1", 512},
                                                     {"rows2", 0},
                                                     {"cols", 4096},
                                                     {"tokens", 16},
                                                     {"x_bf16", 0}});
  CHECK(linear.operations == 2.0 * 16 * 1536 * 4096);
  CHECK(linear.bytes == Approx(1536 * 4096 + 16 * (4096 + 1536 * 2)).epsilon(1e-3));
  CHECK(linear.fp8);
  const KernelWork attention =
      work("sparse_mla_decode",
           {{"rows", 128}, {"heads", 64}, {"window_slots", 128}, {"selected_slots", 512}});
  CHECK(attention.bytes == 128 * 640.0 * 584 + 2 * 128 * 64 * 512 * 2.0);
  CHECK(attention.operations == 4.0 * 128 * 64 * 640 * 512);
  CHECK_FALSE(attention.fp8);
  // One token reads its six experts, many read all.
  const auto experts = [&](int batch) {
    return work(
        "moe_decode",
        {{"batch", batch}, {"inter", 2048}, {"hidden", 4096}, {"experts", 256}, {"topk", 6}});
  };
  const double one = 3.0 * 2048 * 4096 * (0.5 + 1.0 / 32);
  CHECK(experts(1).bytes == Approx(6 * one).epsilon(1e-3));
  CHECK(experts(256).bytes == Approx(256 * one).epsilon(0.01));
  CHECK(work("attention_slots", {{"rows", 4}}).bytes == 0);

  CHECK(floor_us({.bytes = 6e6}, rates()) == Approx(2.5));
  CHECK(floor_us({.bytes = 6e6, .operations = 1e10}, rates()) == Approx(10));
  CHECK(floor_us({.bytes = 6e6, .operations = 1e10, .fp8 = true}, rates()) == Approx(5));
  CHECK(floor_us({}, rates()) == Approx(1.5));
}
