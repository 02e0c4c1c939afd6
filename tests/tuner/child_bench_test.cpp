#include "tuner/child_bench.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/fake_bench.hpp"
#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::tile_variant;
using test::tuning_request;

namespace {

ChildBench made_bench() {
  return ChildBench({.worker_command = {"/proc/self/exe", "fake-trials"},
                     .trial_timeout = std::chrono::seconds(1)});
}

TrialKernel mma(int tile) {
  return {tile_variant("mma", tile), std::vector<std::byte>(10)};
}

}  // namespace

TEST_CASE("a child verifies and measures candidates", "[cpu][tuner]") {
  ChildBench bench = made_bench();
  REQUIRE(bench.enter(tuning_request(), mma(64)).is_good());
  const TrialKernel simt{tile_variant("simt", 2), {}};
  CHECK(bench.verify(simt).is_good());
  CHECK(bench.measure(simt).time_us == 8);
  const Trial wrong = bench.verify(mma(16));
  CHECK(wrong.end == Trial::End::wrong);
  CHECK(wrong.reason == "edge case \"empty row\": lse[2] is not written");
  CHECK(wrong.bars());
  const Trial refused = bench.verify(mma(8));
  CHECK(refused.end == Trial::End::refused);
  CHECK(refused.reason == "too many resources requested for launch");
  CHECK(bench.children_started() == 1);
  // A request that the runner does not know.
  CHECK(bench.enter(tuning_request(2000), mma(64)).reason == "no inputs for this problem");
}

TEST_CASE("a candidate that hangs or faults costs only its child", "[cpu][tuner]") {
  ChildBench bench = made_bench();
  REQUIRE(bench.enter(tuning_request(), mma(64)).is_good());
  const Trial hung = bench.verify(mma(32));
  CHECK(hung.end == Trial::End::hung);
  CHECK(hung.reason == "hangs: no answer for 1 s");
  CHECK(bench.measure(mma(64)).time_us == 10);  // in a new child, which has the request

  const Trial faulted = bench.measure(mma(128));
  CHECK(faulted.end == Trial::End::faulted);
  CHECK_THAT(faulted.reason,
             Catch::StartsWith("signal 11") && Catch::EndsWith("): free(): invalid pointer"));
  CHECK(bench.measure(mma(64)).is_good());

  const Trial lost_context = bench.verify(mma(4));
  CHECK(lost_context.end == Trial::End::faulted);
  CHECK(lost_context.reason == "exit status 3: cuStreamSynchronize: an illegal memory access");
  CHECK(bench.measure(mma(64)).is_good());
  CHECK(bench.children_started() == 4);
}

TEST_CASE("a child that is killed from outside blames nobody", "[cpu][tuner]") {
  ChildBench bench = made_bench();
  REQUIRE(bench.enter(tuning_request(), mma(64)).is_good());
  const Trial lost = bench.verify(mma(256));
  CHECK(lost.end == Trial::End::lost);
  CHECK_FALSE(lost.bars());
  CHECK(bench.children_started() == 2);  // it was tried twice
  ChildBench absent({.worker_command = {"/absent/program"}});
  CHECK(absent.enter(tuning_request(), mma(64)).end == Trial::End::lost);
}

TEST_CASE("the reference variant itself may fail", "[cpu][tuner]") {
  ChildBench bench = made_bench();
  CHECK(bench.enter(tuning_request(), mma(4)).end == Trial::End::faulted);
  CHECK(bench.enter(tuning_request(), mma(8)).end == Trial::End::refused);
  CHECK(bench.enter(tuning_request(), mma(64)).is_good());
}

TEST_CASE("frames between a bench and its child are read back, others refused", "[cpu][tuner]") {
  const TrialJob job{.what = TrialJob::What::enter,
                     .families = {"mma", "simt"},
                     .problem = tuning_request().problem,
                     .kernel = mma(64)};
  const std::string frame = encode_trial_job(job);
  const auto read = decode_trial_job(frame);
  REQUIRE(read);
  CHECK(read->families == job.families);
  CHECK(read->problem == job.problem);
  CHECK(read->kernel.variant == job.kernel.variant);
  CHECK(read->kernel.cubin == job.kernel.cubin);
  const std::string reply = encode_trial({Trial::End::hung, "why", 2.5});
  const auto trial = decode_trial(reply);
  REQUIRE(trial);
  CHECK(trial->end == Trial::End::hung);
  CHECK(trial->reason == "why");
  CHECK(trial->time_us == 2.5);
  for (std::size_t cut = 0; cut < frame.size(); ++cut)
    REQUIRE_FALSE(decode_trial_job(frame.substr(0, cut)));
  for (std::size_t cut = 0; cut < reply.size(); ++cut)
    REQUIRE_FALSE(decode_trial(reply.substr(0, cut)));
  CHECK_FALSE(decode_trial_job("\x7" + frame.substr(1)));
  CHECK_FALSE(decode_trial("\x7" + reply.substr(1)));
}
