#include "src/plan/kernel_requests.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/attention_slots.space.hpp"
#include "kernel_templates/compress_kv.space.hpp"
#include "kernel_templates/expert_sum.space.hpp"
#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/indexer_queries.space.hpp"
#include "kernel_templates/indexer_scores.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/indexer_topk.space.hpp"
#include "kernel_templates/memory_read.space.hpp"
#include "kernel_templates/rms_norm.space.hpp"
#include "kernel_templates/rope_kv_append.space.hpp"
#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/split_kv_combine.space.hpp"
#include "kernel_templates/swiglu_quant.space.hpp"
#include "src/plan/step_kernels.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig real_config() {
  return value_or_throw(read_model_config(test::golden_dir().parent_path().parent_path() /
                                          "configs/deepseek-v4-flash/config.json"));
}

std::set<std::string> families_in(const std::vector<kernels::VariantSet>& sets) {
  std::set<std::string> names;
  for (const auto& set : sets)
    names.insert(set.family);
  return names;
}

}  // namespace

TEST_CASE("a plan names the kernels of the model for its card", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto sets = kernel_requests(real_config(), {.batch_buckets = {1, 64}}, limits);
  REQUIRE(sets);
  const auto families = families_in(*sets);
  CHECK(families.contains("rope_kv_append"));
  CHECK(families.contains("fp8_linear"));
  CHECK(families.contains("fp8_linear_sm90"));
  for (const char* small :
       {"bf16_linear", "attention_slots", "embedding", "expert_sum", "grouped_linear",
        "grouped_linear_few", "hc_pre", "hc_post", "q_norm_rope", "router_topk", "sample_tokens",
        "shared_expert_few", "swiglu_quant"})
    CHECK(families.contains(small));
  for (const auto& set : *sets) {
    CAPTURE(set.family);
    CHECK_FALSE(set.candidates.empty());
  }
}

TEST_CASE("a plan for another architecture leaves out what does not run there", "[cpu][plan]") {
  const auto ampere = value_or_throw(cu::limits_of_arch("sm_80"));
  const auto sets = kernel_requests(real_config(), {}, ampere);
  REQUIRE(sets);
  CHECK_FALSE(families_in(*sets).contains("fp8_linear_sm90"));
  const auto turing = value_or_throw(cu::limits_of_arch("sm_75"));
  const auto none = kernel_requests(real_config(), {}, turing);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::unsupported);
}

TEST_CASE("a plan takes passes of many rows through the kernels of many tokens", "[cpu][plan]") {
  const auto families_of = [](const char* arch, int rows) {
    const auto limits = value_or_throw(cu::limits_of_arch(arch));
    return families_in(
        value_or_throw(kernel_requests(real_config(), {.batch_buckets = {rows}}, limits)));
  };
  CHECK(families_of("sm_90a", 4096).contains("hc_pre_wide"));
  CHECK(families_of("sm_90a", 4096).contains("bf16_linear_sm90"));
  CHECK(families_of("sm_90a", 2048).contains("hc_pre_wide"));
  CHECK_FALSE(families_of("sm_90a", 1024).contains("hc_pre_wide"));
  CHECK(families_of("sm_90a", 512).contains("bf16_linear_sm90"));
  CHECK_FALSE(families_of("sm_90a", 256).contains("bf16_linear_sm90"));
  CHECK(families_of("sm_80", 4096).contains("hc_pre_wide"));
  CHECK_FALSE(families_of("sm_80", 4096).contains("bf16_linear_sm90"));
}

TEST_CASE("inputs of many tokens' experts are gathered with the scales that the products read",
          "[cpu][plan]") {
  const auto gathers = [](const char* arch, const std::string& product) {
    const auto limits = value_or_throw(cu::limits_of_arch(arch));
    std::string titles;
    bool has_product = false;
    for (const KernelUse& use :
         value_or_throw(kernel_uses(real_config(), {.batch_buckets = {4096}}, limits))) {
      const auto family = use.tuning.families().front();
      has_product |= family == product;
      if (family == "expert_gather") titles += use.tuning.title() + " ";
    }
    REQUIRE(has_product);
    return titles;
  };
  CHECK(gathers("sm_90a", "moe_prefill_sm90").find(" row_scales=1 ") != std::string::npos);
  CHECK(gathers("sm_80", "moe_prefill").find(" row_scales=0 ") != std::string::npos);
}

TEST_CASE("a plan names the compressors that the model's layers have, and the indexer",
          "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto value_of = [](const kernels::VariantSet& set, const std::string& name) {
    const auto& params = set.candidates.front().params;
    return std::find_if(params.begin(), params.end(), [&](const auto& p) { return p.name == name; })
        ->value;
  };
  const auto compressors = [&](const ModelConfig& config) {
    std::set<std::pair<std::int64_t, std::int64_t>> found;
    const auto sets = kernel_requests(config, {.batch_buckets = {1, 64}}, limits);
    for (const auto& set : value_or_throw(sets))
      if (set.family == "compress_kv")
        found.emplace(value_of(set, "RATIO"), value_of(set, "INDEX_KEYS"));
    return found;
  };
  CHECK(compressors(real_config()) ==
        std::set<std::pair<std::int64_t, std::int64_t>>{{4, 0}, {4, 1}, {128, 0}});
  ModelConfig only_hca = real_config();
  std::replace(only_hca.compress_ratios.begin(), only_hca.compress_ratios.end(), 4, 128);
  CHECK(compressors(only_hca) == std::set<std::pair<std::int64_t, std::int64_t>>{{128, 0}});
  CHECK_FALSE(
      families_in(value_or_throw(kernel_requests(only_hca, {}, limits))).contains("indexer_topk"));

  // Contexts of 1M tokens keep fewer ways to cut a row than short ones; heads are not split.
  const auto sets = value_or_throw(
      kernel_requests(real_config(), {.tp_size = 8, .context_buckets = {8192, 1'048'576}}, limits));
  std::vector<std::size_t> ways;
  for (const auto& set : sets) {
    if (set.family == "indexer_topk") {
      CHECK(value_of(set, "TOPK") == 512);
      ways.push_back(set.candidates.size());
    }
    if (set.family.starts_with("indexer_scores")) CHECK(value_of(set, "HEADS") == 64);
  }
  CHECK(families_in(sets).contains("indexer_scores_sm90"));
  REQUIRE(ways.size() == 2);
  CHECK(ways[0] > ways[1]);
}

TEST_CASE("a plan names the attention of each kind of layer and the experts of a rank",
          "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto uses = value_or_throw(kernel_uses(
      real_config(), {.tp_size = 8, .batch_buckets = {1, 256}, .context_buckets = {8192, 131072}},
      limits));
  std::multiset<std::string> slots;
  std::vector<std::string> experts, activations, shared, sums;
  for (const KernelUse& use : uses) {
    const auto families = use.tuning.families();
    const auto field = [&](const std::string& name) {
      const auto title = use.tuning.title() + " ";
      const auto at = title.find(" " + name + "=") + name.size() + 2;
      return title.substr(at, title.find(' ', at) - at);
    };
    if (families.front().starts_with("sparse_mla_decode")) {
      CHECK(families.size() == 2);
      CHECK(field("heads") == "8");
      slots.insert(field("selected_slots"));
    }
    if (families.front() == "moe_decode") experts.push_back(field("batch") + "x" + field("inter"));
    if (families.front() == "swiglu_quant")
      activations.push_back(field("tokens") + "x" + field("inter"));
    if (families.front() == "shared_expert_few")
      shared.push_back(field("tokens") + "x" + field("inter") + " hash=" + field("hash"));
    CHECK(families.front() != "expert_sum");  // it is part of the sum over ranks
    if (families.front() == "all_reduce")
      sums.push_back(field("ranks") + ": " + field("tokens") + "x" + field("hidden"));
  }
  // Window, CSA, HCA at both contexts, for both batches.
  CHECK(slots == std::multiset<std::string>{"0", "0", "1024", "1024", "512", "512", "64", "64"});
  CHECK(experts == std::vector<std::string>{"1x256", "256x256"});
  CHECK(activations == std::vector<std::string>{"256x256"});
  CHECK(shared == std::vector<std::string>{"1x256 hash=1", "1x256 hash=0"});
  // Of the embedding, the attention and the experts.
  CHECK(sums == std::vector<std::string>{"8: 1x4096", "8: 1x4096", "8: 1x4096", "8: 256x4096",
                                         "8: 256x4096", "8: 256x4096"});
}

TEST_CASE("a plan makes the lists of keys for each bucket", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto lists = [&](const ModelConfig& config) {
    std::set<std::string> titles;
    const auto uses = value_or_throw(kernel_uses(
        config, {.batch_buckets = {1, 64}, .context_buckets = {100, 1'048'576}}, limits));
    for (const KernelUse& use : uses)
      if (use.tuning.families().front() == "attention_slots") titles.insert(use.tuning.title());
    return titles;
  };
  const std::string ring = " ring=384 wide=0 page_entries=64 hca_slots=";
  CHECK(lists(real_config()) ==
        std::set<std::string>{"attention_slots rows=1 window=128" + ring + "1",
                              "attention_slots rows=1 window=128" + ring + "8192",
                              "attention_slots rows=64 window=128" + ring + "1",
                              "attention_slots rows=64 window=128" + ring + "8192"});
  // Without HCA layers no list of theirs.
  ModelConfig other = real_config();
  std::replace(other.compress_ratios.begin(), other.compress_ratios.end(), 128, 4);
  CHECK(lists(other) == std::set<std::string>{"attention_slots rows=1 window=128" + ring + "0",
                                              "attention_slots rows=64 window=128" + ring + "0"});
  other.sliding_window = 256;
  const auto refused = kernel_uses(other, {}, limits);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::unsupported);
  CHECK_THAT(refused.error().message, Catch::Contains("a sliding window of 256"));
}

TEST_CASE("every kernel of every step has a variant on every architecture", "[cpu][plan]") {
  const auto named = [](const char* name) {
    return value_or_throw(
        read_model_config(test::golden_dir() / "reference" / (std::string(name) + ".json")));
  };
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const auto limits = value_or_throw(cu::limits_of_arch(arch));
    for (const int rows : {1, 2, 8, 32, 64, 128, 256}) {
      const PlanScope scope{.batch_buckets = {rows}, .context_buckets = {4096, 131072}};
      CAPTURE(arch, rows);
      CHECK(value_or_throw(kernel_uses(named("tiny"), scope, limits)).size() > 30);
      CHECK(value_or_throw(kernel_uses(named("tiny-tp"), scope, limits)).size() > 30);
      for (const int tp_size : {1, 8}) {
        PlanScope split = scope;
        split.tp_size = tp_size;
        CHECK(value_or_throw(kernel_uses(real_config(), split, limits)).size() > 30);
      }
    }
  }
}

TEST_CASE("a plan refuses attention heads that are no whole tiles", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  ModelConfig other = real_config();
  other.num_heads = 32;
  const auto heads = kernel_requests(other, {.tp_size = 8}, limits);
  REQUIRE_FALSE(heads);
  CHECK(heads.error().code == ErrorCode::unsupported);
  CHECK_THAT(heads.error().message, Catch::Contains("4 attention heads"));
}

TEST_CASE("a plan refuses an indexer and entries of other widths", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  ModelConfig other = real_config();
  other.index_heads = 12;
  const auto heads = kernel_requests(other, {}, limits);
  REQUIRE_FALSE(heads);
  CHECK(heads.error().code == ErrorCode::unsupported);
  CHECK_THAT(heads.error().message, Catch::Contains("12 heads"));
  other = real_config();
  other.rope_dim = 32;
  const auto rope = kernel_requests(other, {}, limits);
  REQUIRE_FALSE(rope);
  CHECK(rope.error().code == ErrorCode::unsupported);
  CHECK_THAT(rope.error().message, Catch::Contains("32 of them rope"));
}

TEST_CASE("a plan has each set of variants once", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto few = kernel_requests(real_config(), {.batch_buckets = {1}}, limits);
  const auto same = kernel_requests(real_config(), {.batch_buckets = {1, 1}}, limits);
  REQUIRE(few);
  REQUIRE(same);
  CHECK(same->size() == few->size());
}

TEST_CASE("families that may serve one use compete in one tuning, each use once", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto uses = kernel_uses(real_config(), {.batch_buckets = {16, 64}}, limits);
  REQUIRE(uses);
  std::set<std::string> titles;
  int shared = 0;
  for (const KernelUse& use : *uses) {
    CAPTURE(use.tuning.title());
    CHECK(titles.insert(use.tuning.title()).second);
    std::size_t candidates = 0;
    for (const auto& set : use.families)
      candidates += set.candidates.size();
    CHECK(use.tuning.candidates.size() == candidates);
    CHECK(use.tuning.candidates.front() == use.families.front().candidates.front());
    for (const auto& [rule, count] : use.tuning.rejections)
      CHECK(rule.find(": ") != std::string::npos);
    shared +=
        use.tuning.families() == std::vector<std::string>{"fp8_linear_sm90", "fp8_linear"} ? 1 : 0;
  }
  CHECK(shared > 0);
  // A bucket is a problem of its own, also where its candidates are another's.
  CHECK(titles.contains("expert_sum hidden=4096 tokens=16"));
  CHECK(titles.contains("expert_sum hidden=4096 tokens=64"));
}

TEST_CASE("the indexer is whole on every rank, and tuned for each bucket", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto uses = value_or_throw(
      kernel_uses(real_config(), {.tp_size = 8, .context_buckets = {8192, 1'048'576}}, limits));
  std::set<std::string> titles;
  for (const KernelUse& use : uses)
    titles.insert(use.tuning.title());
  const auto has = [&](const std::string& start) {
    const auto at = titles.lower_bound(start);
    return at != titles.end() && at->starts_with(start);
  };
  CHECK(has("fp8_linear_sm90+fp8_linear rows0=4096 rows1=8192 rows2=0 cols=1024"));
  CHECK(has("indexer_queries rows=1 heads=64"));
  for (const std::string entries : {"2048", "262144"}) {
    CHECK(has("indexer_scores_sm90+indexer_scores rows=1 rows_together=1 heads=64 entries=" +
              entries));
    CHECK(has("indexer_topk rows=1 entries=" + entries));
  }
}

TEMPLATE_TEST_CASE("a family's problem comes back from its fields", "[cpu][plan]",
                   kernels::ActQuant, kernels::AttentionSlots, kernels::CompressKv,
                   kernels::ExpertSum, kernels::Fp8Linear, kernels::Fp8LinearSm90,
                   kernels::IndexerQueries, kernels::IndexerScores, kernels::IndexerScoresSm90,
                   kernels::IndexerTopk, kernels::MemoryRead, kernels::RmsNorm,
                   kernels::RopeKvAppend, kernels::SparseMlaDecode, kernels::SplitKvCombine,
                   kernels::SwigluQuant) {
  std::set<std::string> seen;
  for (const auto& problem : TestType::sample_problems()) {
    const auto fields = problem_fields(problem);
    CHECK(seen.insert(describe(fields)).second);
    const auto back = problem_from<typename TestType::Problem>(fields);
    REQUIRE(back);
    CHECK(problem_fields(*back) == fields);
  }
}

TEST_CASE("a plan refuses a split that the model does not have, and a model without blocks",
          "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto split = kernel_requests(real_config(), {.tp_size = 3}, limits);
  REQUIRE_FALSE(split);
  CHECK(split.error().code == ErrorCode::invalid_argument);
  CHECK_THAT(split.error().message, Catch::Contains("valid TP sizes: 1, 2, 4, 8"));
  ModelConfig odd = real_config();
  odd.q_lora_rank = 1000;
  const auto blocks = kernel_requests(odd, {}, limits);
  REQUIRE_FALSE(blocks);
  CHECK(blocks.error().code == ErrorCode::unsupported);
  CHECK_THAT(blocks.error().message, Catch::Contains("1000"));
}

TEST_CASE("a plan has hyper-connections for every place of the model", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto sets = kernel_requests(real_config(), {.batch_buckets = {1}}, limits);
  REQUIRE(sets);
  std::set<std::string> uses;
  for (const auto& set : *sets) {
    if (set.family != "hc_pre") continue;
    std::string use;
    for (const auto& param : set.candidates.front().params) {
      if (param.type == "bool" && param.value != 0) use += param.name + " ";
    }
    uses.insert(use);
  }
  CHECK(uses == std::set<std::string>{"QUANTIZE ", "AFTER_SUBLAYER QUANTIZE ", "HEAD "});
  ModelConfig other = real_config();
  other.hc_mult = 2;
  const auto refused = kernel_requests(other, {}, limits);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::unsupported);
  CHECK_THAT(refused.error().message, Catch::Contains("2 hyper-connection streams"));
}

namespace {

/// What runs without a tuning record, of everything that a step launches.
struct UntunedVariants {
  cu::DeviceLimits device;
  std::set<std::string> names = {};

  template <class First, class... Others>
  std::size_t want(const typename First::Problem& problem) {
    const auto sets = kernels::competing<First, Others...>(problem, device);
    names.insert(jit::describe(sets.at(0).candidates.at(0)));
    return names.size();
  }
  const cu::DeviceLimits& limits() const { return device; }
};

}  // namespace

TEST_CASE("whatever step the engine runs, its untuned kernels are in prewarm's default plan",
          "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const ModelConfig config = real_config();
  const PlanScope scope{.batch_buckets = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096},
                        .context_buckets = {4096, 32768, 131072}};
  std::set<std::string> planned;
  for (const auto& set : value_or_throw(kernel_requests(config, scope, limits)))
    planned.insert(jit::describe(set.candidates.front()));
  UntunedVariants wanted{.device = limits};
  const auto add = [&](const StepBucket& step) {
    const StepBucket bucket = bucket_of(step, config.max_position_embeddings);
    StepKernels::want(wanted, config, step_problems(config, 1, bucket));
  };
  for (const int batch : {1, 3, 5, 7, 33, 48, 200}) {
    for (const std::int64_t context : {1, 300, 5000, 16384, 100000}) {
      add({.rows = batch, .sequences = batch, .logit_rows = batch, .context = context});
      // A chunk beside running answers; one without any; one whose every logit is wanted.
      add({.rows = batch + 6,
           .sequences = batch + 1,
           .sequence_rows = 6,
           .logit_rows = batch,
           .context = context});
      add({.rows = batch + 6, .sequence_rows = batch + 6, .logit_rows = 0, .context = context});
      add({.rows = batch, .sequence_rows = batch, .logit_rows = batch, .context = context});
    }
  }
  for (const int rows : {257, 700, 1025, 4096}) {
    for (const std::int64_t context : {4096, 16384, 100000}) {
      add({.rows = rows, .sequence_rows = rows, .logit_rows = 0, .context = context});
      add({.rows = rows,
           .sequences = 9,
           .sequence_rows = rows - 8,
           .logit_rows = 9,
           .context = context});
    }
  }
  std::vector<std::string> missing;
  std::set_difference(wanted.names.begin(), wanted.names.end(), planned.begin(), planned.end(),
                      std::back_inserter(missing));
  CHECK(missing == std::vector<std::string>{});
}

namespace {

/// The families that a step launches.
struct Families {
  cu::DeviceLimits device;
  std::string disabled = {};
  std::multiset<std::string> stems = {};

  template <class First, class... Others>
  std::size_t want(const typename First::Problem&) {
    stems.emplace(First::kStem);
    return stems.size();
  }
  const cu::DeviceLimits& limits() const { return device; }
  bool disables(std::string_view family) const { return family == disabled; }
};

}  // namespace

TEST_CASE("the shared expert and the router of few tokens are one launch where that may be",
          "[cpu][plan]") {
  const ModelConfig config = real_config();
  Families hopper{.device = value_or_throw(cu::limits_of_arch("sm_90a"))};
  const auto stems = [&](Families families, const StepBucket& bucket, int tp_size = 1) {
    StepKernels::want(families, config, step_problems(config, tp_size, bucket));
    return families.stems;
  };
  const auto joined = [](const std::multiset<std::string>& of) {
    // Of layers that choose by score and of those that choose by token id.
    const bool one = of.count("shared_expert_few") == 2;
    CHECK(of.count("router_topk") == (one ? 0 : 2));
    CHECK(of.count("swiglu_quant") == (one ? 0 : 1));
    return one;
  };
  CHECK(joined(stems(hopper, {.rows = 1})));
  CHECK(joined(stems(hopper, {.rows = 4, .sequences = 4, .logit_rows = 4}, 2)));
  CHECK(joined(stems(hopper, {.rows = 8, .sequences = 8, .logit_rows = 8})));
  CHECK_FALSE(joined(stems(hopper, {.rows = 16, .sequences = 16, .logit_rows = 16})));
  // Sums that must not depend on the number of rows.
  CHECK_FALSE(joined(stems(hopper, {.rows = 1, .batch_free = true})));
  // A user who wants to compare.
  Families without = hopper;
  without.disabled = "shared_expert_few";
  CHECK_FALSE(joined(stems(without, {.rows = 1})));
  const auto planned =
      value_or_throw(kernel_requests(config, {.disabled = {"shared_expert_few"}}, hopper.device));
  CHECK(families_in(planned).contains("router_topk"));
  CHECK_FALSE(families_in(planned).contains("shared_expert_few"));
  // Fewer multiprocessors than blocks; less shared memory than weights.
  Families smaller = hopper;
  smaller.device.sm_count = 114;
  CHECK_FALSE(joined(stems(smaller, {.rows = 1})));
  const Families workstation{.device = value_or_throw(cu::limits_of_arch("sm_120a"))};
  CHECK_FALSE(joined(stems(workstation, {.rows = 1})));
  CHECK(joined(stems(workstation, {.rows = 1}, 4)));
}
