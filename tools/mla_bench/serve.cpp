#include <fmt/format.h>

#include <optional>

#include "tools/mla_bench/run.hpp"

namespace ingot::bench {

std::vector<std::filesystem::path> library_directories() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64"};
}

int serve_mla_bench(int channel, const std::filesystem::path& cubins, const std::string& arch) {
  const cu::DeviceLimits limits = value_or_throw(cu::limits_of_arch(arch));
  const std::vector<MlaCell> cells = mla_cells();
  const CubinFolder folder(cubins, arch);
  std::optional<MlaBench> bench;
  std::size_t entered = cells.size(), listed = cells.size();
  int listed_layout = -1;
  std::vector<MlaCandidate> candidates;
  return answer_questions(channel, [&](const std::string& frame) {
    const MlaQuestion question = decode_question(frame);
    if (!bench) {
      bench.emplace(value_or_throw(cu::DriverApi::open(library_directories())), folder);
      const auto& device = bench->context().device();
      if (device.sm_count != limits.sm_count) {
        throw EngineError(ErrorCode::unsupported,
                          fmt::format("{} has {} multiprocessors, candidates were made for {}",
                                      device.name, device.sm_count, limits.sm_count));
      }
    }
    if (question.kind == MlaQuestion::Kind::card)
      return encode(
          MlaCard{bench->context().device().name, bench->empty_node_us(), bench->cold_reads()});
    if (entered != question.cell) bench->enter(cells.at(entered = question.cell));
    if (question.kind == MlaQuestion::Kind::simt) return encode_us(bench->simt_us());
    if (listed != question.cell || listed_layout != question.layout) {
      listed = question.cell;
      listed_layout = question.layout;
      candidates = mla_candidates(cells[listed], listed_layout, limits);
    }
    return encode(bench->run(candidates.at(question.candidate), question.thoroughly));
  });
}

}  // namespace ingot::bench
