#include "tests/tuner/tuning_fixture.hpp"

namespace ingot::test {

jit::SourceTree tuning_templates(const std::string& text) {
  return jit::SourceTree({{"mma.cuh", text}, {"simt.cuh", text}});
}

std::unique_ptr<jit::KernelStore> tuning_kernels(const std::filesystem::path& directory,
                                                 std::shared_ptr<jit::Compiler> compiler,
                                                 const std::string& text) {
  jit::KernelStore::Options options;
  if (!directory.empty()) options.directories = {directory};
  return std::make_unique<jit::KernelStore>(tuning_templates(text), std::move(compiler), options);
}

jit::Variant tile_variant(const std::string& family, int tile) {
  return {.family = family, .params = {{"int", "TILE", tile}, {"bool", "SINK", 1}}};
}

TuningRequest tuning_request(int rows) {
  TuningRequest request{.problem = {{"rows", rows}, {"cols", 4096}},
                        .candidates = {},
                        .rejections = {{"mma: shared memory fits", 2}}};
  for (const int tile : {64, 16, 32, 128})
    request.candidates.push_back(tile_variant("mma", tile));
  for (const int tile : {1, 2})
    request.candidates.push_back(tile_variant("simt", tile));
  return request;
}

TuningDevice tuning_device() {
  return {.name = "NVIDIA H200", .arch = "sm_90a", .sm_count = 132, .driver_branch = "580"};
}

TuningKey tuning_key(const TuningRequest& request) {
  return value_or_throw(key_of(request, tuning_device(), 1, "as made up", *tuning_kernels()));
}

TuningRecord made_record(const TuningRequest& request, std::size_t chosen) {
  TuningRecord record{.key = tuning_key(request),
                      .complete = true,
                      .noise = 0.0125,
                      .candidates = {},
                      .rejections = request.rejections};
  for (std::size_t i = 0; i < request.candidates.size(); ++i) {
    const double time = i == chosen ? 10 : 20.25 + static_cast<double>(i);
    record.candidates.push_back({.variant = request.candidates[i],
                                 .standing = i == chosen ? Standing::chosen : Standing::slower,
                                 .reason = {},
                                 .time_us = time,
                                 .median_us = time + 0.1,
                                 .spread = 0.01,
                                 .samples_us = {time, time + 0.1, time + 0.2}});
  }
  return record;
}

}  // namespace ingot::test
