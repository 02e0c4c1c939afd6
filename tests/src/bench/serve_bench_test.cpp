// The closed loop of `bench serve`, over an engine that is made up.
#include "src/bench/serve_bench.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/bench/serve_report.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using nlohmann::json;

namespace {

constexpr ServeLoad kSmall{.concurrency = 4,
                           .requests = 10,
                           .input = {.least = 30, .most = 30},
                           .output = {.least = 7, .most = 7},
                           .prefill_chunk = 16};

std::string printed(const std::function<void(std::FILE*)>& print) {
  const test::TempDir dir;
  std::FILE* out = std::fopen((dir / "out").c_str(), "w");
  print(out);
  std::fclose(out);
  return test::read_file(dir / "out");
}

}  // namespace

TEST_CASE("a closed loop keeps as many requests as it is told to, and counts what they get",
          "[cpu][bench]") {
  test::FakeEngine engine;
  const ServeResult r = measure_serve(engine, test::small_tokenizer(), kSmall);
  CHECK(r.totals.prompt_tokens == 10 * 30);
  CHECK(r.totals.generated_tokens == 10 * 7);
  CHECK(engine.widest_batch() == 4);
  CHECK(engine.live_sequences() == 0);
  CHECK(r.mean_batch() > 2);
  CHECK(r.mean_batch() <= 4);
  CHECK(r.occupancy() == Approx(r.mean_batch() / 4));
  // Tokens before each that was chosen: the 30 of a prompt and up to six more.
  CHECK(r.mean_context == Approx(33));
  // The first of an answer comes of a step that fed the prompt.
  CHECK(r.decode_tokens > 0);
  CHECK(r.decode_tokens <= 10 * 6);
  CHECK(r.totals.steps > r.totals.prompt_steps);
  CHECK(r.output_tokens_per_s() == Approx(70 / r.seconds));
  CHECK(r.first_token_median_ms > 0);
  CHECK(r.first_token_p99_ms >= r.first_token_median_ms);
  CHECK(r.first_token_p99_ms <= 1e3 * r.seconds);
  CHECK(r.graph_steps == -1);
}

TEST_CASE("the time to the first token is that of the request's own steps", "[cpu][bench]") {
  test::FakeEngine engine;
  engine.set_before_step([](int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  ServeLoad load = kSmall;
  load.concurrency = 1;
  load.requests = 3;
  const ServeResult r = measure_serve(engine, test::small_tokenizer(), load);
  CHECK(r.first_token_median_ms >= 2 * 2);  // two chunks of 16
  CHECK(r.first_token_median_ms < 1e3 * r.seconds / 3);
  CHECK(r.steps_per_s() < 500);
  CHECK(r.mean_batch() == 1);
}

TEST_CASE("time in which the engine waits for the host is told", "[cpu][bench]") {
  test::FakeEngine slow_to_begin, slow_to_end;
  const auto sleep = [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  slow_to_begin.set_overlaps(true);
  slow_to_begin.set_before_step(sleep);
  slow_to_end.set_overlaps(true);
  slow_to_end.set_before_finish(sleep);
  ServeLoad load = kSmall;
  load.requests = 4;
  // One begins each step late, the other one works on it for as long.
  CHECK(measure_serve(slow_to_begin, test::small_tokenizer(), load).idle_share() > 0.5);
  const ServeResult r = measure_serve(slow_to_end, test::small_tokenizer(), load);
  CHECK(r.idle_share() < 0.5);
  CHECK(r.idle_share() > 0);
  CHECK(r.decode_steps > 0);
  CHECK(r.decode_steps < r.totals.steps);
  CHECK(r.decode_mean_batch() ==
        Approx(static_cast<double>(r.decode_tokens) / static_cast<double>(r.decode_steps)));
  CHECK(r.prompt_share() > 0);
  CHECK(r.prompt_share() < 1);
}

TEST_CASE("a seed makes other lengths", "[cpu][bench]") {
  ServeLoad load = kSmall;
  load.input = {.least = 2, .most = 40};
  test::FakeEngine engine;
  const ServeResult one = measure_serve(engine, test::small_tokenizer(), load);
  load.seed = 2;
  const ServeResult other = measure_serve(engine, test::small_tokenizer(), load);
  CHECK(one.totals.prompt_tokens != other.totals.prompt_tokens);
}

TEST_CASE("a range of lengths is drawn from end to end, and the same each time", "[cpu][bench]") {
  ServeLoad load = kSmall;
  load.requests = 200;
  load.input = {.least = 2, .most = 9};
  load.output = {.least = 1, .most = 3};
  test::FakeEngine engine, again;
  const ServeResult r = measure_serve(engine, test::small_tokenizer(), load);
  CHECK(r.totals.prompt_tokens > 200 * 4);
  CHECK(r.totals.prompt_tokens < 200 * 7);
  CHECK(r.totals.generated_tokens > 340);
  CHECK(r.totals.generated_tokens < 460);
  const ServeResult same = measure_serve(again, test::small_tokenizer(), load);
  CHECK(same.totals.prompt_tokens == r.totals.prompt_tokens);
  CHECK(same.totals.steps == r.totals.steps);
}

TEST_CASE("serving with few pages says how often requests gave theirs back", "[cpu][bench]") {
  test::FakeEngine engine;
  engine.set_pages(25, 4);  // a request needs ten in the end
  const ServeResult r = measure_serve(engine, test::small_tokenizer(), kSmall);
  CHECK(r.totals.preemptions > 0);
  CHECK(r.totals.generated_tokens == 10 * 7);
  CHECK(engine.pages_in_use() == 0);
  CHECK_THAT(printed([&](std::FILE* out) { print_serve(r, out); }), Catch::Contains("preemptions"));
}

TEST_CASE("a load that is longer than the context is refused", "[cpu][bench]") {
  test::FakeEngine engine;
  engine.set_max_context(36);
  CHECK_THROWS_WITH(measure_serve(engine, test::small_tokenizer(), kSmall),
                    Catch::Contains("up to 30 tokens") && Catch::Contains("context is 36"));
}

TEST_CASE("decode steps alone have the context that they are asked for", "[cpu][bench]") {
  test::FakeEngine engine;
  std::size_t longest = 0;
  engine.set_logits([&](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    longest = std::max(longest, tokens.size());
    logits[3] = 1;
  });
  CHECK(decode_tokens_per_s(engine, 3, 300, 5) > 0);
  CHECK(longest == 300 + 1 + 5);
  CHECK(engine.widest_batch() == 3);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("a made-up tokenizer has a text for every token", "[cpu][bench]") {
  const Tokenizer tokenizer = made_up_tokenizer(1000);
  CHECK_FALSE(tokenizer.is_added(999));
  CHECK(tokenizer.is_added(1000));
  CHECK(tokenizer.bytes('A') == "A");
  CHECK(tokenizer.bytes(10) == "\n");
  CHECK(tokenizer.bytes(0xFF) == "\xFF");
  CHECK(tokenizer.bytes(999) == " w999");
  CHECK(made_up_tokenizer(100).bytes(255) == "\xFF");
}

TEST_CASE("a line and a JSON line of serving hold the same", "[cpu][bench]") {
  ServeResult r;
  r.load = kSmall;
  r.load.input = {.least = 20, .most = 4000};
  r.seconds = 2;
  r.totals.steps = 100;
  r.totals.prompt_steps = 10;
  r.totals.sequence_steps = 350;
  r.totals.generated_tokens = 340;
  r.totals.prompt_tokens = 20000;
  r.first_token_median_ms = 12.5;
  r.first_token_p99_ms = 40;
  r.decode_tokens = 300;
  r.decode_steps = 75;
  r.decode_s = 1.5;
  r.totals.engine_idle_s = 0.1;
  r.alone_tokens_per_s = 200;
  r.decode_alone_tokens_per_s = 250;
  r.kernels_compiled = 3;
  r.graph_steps = 90;
  const std::string line = printed([&](std::FILE* out) {
    print_serve_head(out);
    print_serve(r, out);
  });
  INFO(line);
  CHECK_THAT(line, Catch::Contains("20..4000") && Catch::Contains("170.0   10000.0"));
  CHECK_THAT(line, Catch::Contains("3.5  87.5 %   25.0 %   5.0 %     200.0   85.0 %    80.0 %"));
  CHECK_THAT(line, Catch::Contains("(3 kernels were compiled meanwhile)"));
  const json j = json::parse(serve_json(BenchSubject{}, r));
  CHECK(j["bench"] == "serve");
  CHECK(j["input"] == "20..4000");
  CHECK(j["output_tokens_per_s"] == 170.0);
  CHECK(j["mean_batch"] == 3.5);
  CHECK(j["share_of_decode"] == 0.85);
  CHECK(j["decode_steps_tokens_per_s"] == 200.0);
  CHECK(j["decode_steps_mean_batch"] == 4.0);
  CHECK(j["decode_steps_share_of_decode"] == 0.8);
  CHECK(j["prompt_share"] == 0.25);
  CHECK(j["engine_idle_share"] == 0.05);
  CHECK_FALSE(j.contains("card"));
}
