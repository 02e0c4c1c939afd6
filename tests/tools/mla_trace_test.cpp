#include <catch2/catch.hpp>

#include "kernel_templates/family.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.space.hpp"
#include "runtime/jit/compile_job.hpp"
#include "tools/mla_bench/trace.hpp"

using namespace ingot;
using namespace ingot::bench;

namespace {

jit::Variant decode_variant() {
  return {std::string(kernels::SparseMlaDecodeSm90::kStem),
          jit::param_values(kernels::SparseMlaDecodeSm90Params{})};
}
jit::SourceBundle bundle_of(const jit::Variant& variant) {
  const jit::SourceTree tree(kernels::embedded_templates());
  return value_or_throw(tree.bundle(jit::template_name(variant.family)));
}

}  // namespace

TEST_CASE("the trace finds every line of the wgmma templates that it stamps", "[cpu][tools]") {
  const jit::Variant prefill{std::string(kernels::SparseMlaPrefillSm90::kStem),
                             jit::param_values(kernels::SparseMlaPrefillSm90Params{})};
  for (const jit::Variant& variant : {decode_variant(), prefill}) {
    const auto job = value_or_throw(traced_job(bundle_of(variant), variant, "sm_90a", 4096));
    CHECK(job.source.find("TRACE_AT 4096") != std::string::npos);
    CHECK(job.source.find("TRACE_WORD(TRACE_END)") != std::string::npos);
  }
}

TEST_CASE("the trace refuses a template that has changed under it", "[cpu][tools]") {
  const jit::Variant variant = decode_variant();
  auto bundle = bundle_of(variant);
  for (auto& header : bundle.headers)
    if (header.name == "common/sparse_mla_warpgroups.cuh")
      header.text.erase(header.text.find("    multiply_values(at, raw);"), 5);
  const auto job = traced_job(bundle, variant, "sm_90a", 4096);
  REQUIRE_FALSE(job.has_value());
  CHECK(job.error().code == ErrorCode::not_found);
  CHECK(job.error().message.find("multiply_values(at, raw)") != std::string::npos);
}

TEST_CASE("the trace's table shows medians over blocks and means over tiles", "[cpu][tools]") {
  // Three blocks; in block b stamp i is at 1000 + 10 * i + b * i: steps of 10, 11 and 12 clocks.
  std::vector<std::uint32_t> words(3 * kTraceWords);
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (std::uint32_t i = 0; i < kTraceWords; ++i)
      words[block * kTraceWords + i] = 1000 + (10 + block) * i;
    words[block * kTraceWords + kTraceWords - 8] = 900;
    words[block * kTraceWords + kTraceWords - 7] = 5000 + block;
  }
  const std::string table = trace_table(words, 4);
  CHECK(table.find("block: 4101 clocks") != std::string::npos);
  CHECK(table.find("scores    QK                         11 |     11     11     11     11\n") !=
        std::string::npos);
  // From the block's begin to stamp 18, then 21 stamps from tile to tile.
  CHECK(table.find("producer  begin; tile to tile       231 |    298") != std::string::npos);
}
