#include "tools/mla_bench/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/jit/compile_job.hpp"

namespace ingot::bench {
namespace {

struct Event {
  const char* role;
  const char* step;  ///< that ends here
};
constexpr std::array kEvents{
    Event{"scores", "begin"},           Event{"scores", "wait for the tile"},
    Event{"scores", "tables"},          Event{"scores", "QK"},
    Event{"scores", "wait for free S"}, Event{"scores", "store S"},
    Event{"values 0", "begin"},         Event{"values 0", "wait for S"},
    Event{"values 0", "softmax"},       Event{"values 0", "barrier"},
    Event{"values 0", "rescale"},       Event{"values 0", "PV"},
    Event{"values 1", "begin"},         Event{"values 1", "wait for S"},
    Event{"values 1", "softmax"},       Event{"values 1", "barrier"},
    Event{"values 1", "rescale"},       Event{"values 1", "PV"},
    Event{"producer", "begin"},         Event{"producer", "wait for a free stage"},
    Event{"producer", "request"},
};
constexpr int kEventsPerTile = static_cast<int>(kEvents.size());
constexpr int kMostTiles =
    (kTraceWords - 8) / kEventsPerTile;  // the last 8 words: block begin, end
constexpr int kBegin = kTraceWords - 8, kEnd = kBegin + 1;

// Every lane of every warp of a role stores to the same word: the last warp's clock stays.
constexpr const char* kMacros = R"(
#define TRACE_WORD(word)                                                                        \
  do {                                                                                          \
    ingot::kernels::u32 clock_;                                                                 \
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock_)::"memory");                              \
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(                                               \
                     ptx::shared_address(ptx::dynamic_shared_memory()) + TRACE_AT + 4 * (word)), \
                 "r"(clock_)                                                                    \
                 : "memory");                                                                   \
  } while (0);
#define TRACE(tile, event) TRACE_WORD(min(tile, TRACE_TILES - 1) * TRACE_EVENTS + (event))
)";
constexpr const char* kDump = R"(
  TRACE_WORD(TRACE_END)
  __syncthreads();
  for (int i = threadIdx.x; i < TRACE_WORDS; i += blockDim.x) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];"
                 : "=r"(word)
                 : "r"(ptx::shared_address(ptx::dynamic_shared_memory()) + TRACE_AT + 4 * i));
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    reinterpret_cast<u32*>(reinterpret_cast<u8*>(args.exchange_values) +
                           TRACE_DUMP)[block * TRACE_WORDS + i] = word;
  }
)";

enum class Where { before, after };
struct Edit {
  const char* file;
  Where where;
  const char* line;  ///< text that stands there exactly once
  std::string text;
};

std::vector<Edit> edits_of(const std::string& family) {
  const char* const common = "common/sparse_mla_warpgroups.cuh";
  const std::string kernel = jit::template_name(family);
  const bool prefill = family.find("prefill") != std::string::npos;
  std::vector<Edit> edits{
      {common, Where::before, "  u32 round = 0, turn = 0;", "  int index = 0;\n"},
      {common, Where::after, "    turn ^= 1;\n", "    ++index;\n"},
      {common, Where::before, "    wait(shared.full[stage], at.round);\n    const uint2",
       "TRACE(at.index, 0)\n"},
      {common, Where::before, "    const uint2 scales =\n", "TRACE(at.index, 1)\n"},
      {common, Where::before, "    multiply_keys(s, at.stage);\n", "TRACE(at.index, 2)\n"},
      {common, Where::after, "    multiply_keys(s, at.stage);\n", "TRACE(at.index, 3)\n"},
      {common, Where::before, "    float* const to = &shared.scores[2", "TRACE(at.index, 4)\n"},
      {common, Where::after, "    arrive(shared.scores_full);\n", "TRACE(at.index, 5)\n"},
      {common, Where::before, "    wait(shared.scores_full, at.turn);\n",
       "TRACE(at.index, 6 + group * 6)\n"},
      {common, Where::after, "    wait(shared.scores_full, at.turn);\n",
       "TRACE(at.index, 7 + group * 6)\n"},
      {common, Where::before, "    sync();  // P is there\n", "TRACE(at.index, 8 + group * 6)\n"},
      {common, Where::after, "    sync();  // P is there\n", "TRACE(at.index, 9 + group * 6)\n"},
      {common, Where::after, "    rescale(at.turn);\n", "TRACE(at.index, 10 + group * 6)\n"},
      {common, Where::after, "    multiply_values(at, raw);\n",
       "TRACE(at.index, 11 + group * 6)\n"}};
  if (prefill) {
    edits.push_back(
        {"", Where::before, "      if (!first_round) barrier::wait(", "TRACE(at.index, 18)\n"});
    edits.push_back({"", Where::before, "      ring.request(args,", "TRACE(at.index, 19)\n"});
    edits.push_back({"", Where::before, "      at.advance();\n      if (at.stage == 0)",
                     "TRACE(at.index, 20)\n"});
    edits.push_back({"", Where::after, "    run_values(shared, args);\n  }\n", kDump});
  } else {
    const char* const producer = "common/sparse_mla_producer.cuh";
    edits.push_back(
        {producer, Where::before, "      if (tile >= STAGES) barrier::wait(", "TRACE(tile, 18)\n"});
    edits.push_back({producer, Where::before, "      request(args, key < keys.window_count",
                     "TRACE(tile, 19)\n"});
    edits.push_back({producer, Where::before, "      if (++stage == STAGES) stage = 0, parity",
                     "TRACE(tile, 20)\n"});
    edits.push_back({"", Where::after,
                     "      exchange_and_write(values, shared, args, row, first_head, split);\n"
                     "    }\n  }\n",
                     kDump});
  }
  edits.push_back({"", Where::after,
                   "*reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());\n",
                   "TRACE_WORD(TRACE_BEGIN)\n"});
  return edits;
}

}  // namespace

Result<jit::CompileJob> traced_job(jit::SourceBundle bundle, const jit::Variant& variant,
                                   const std::string& arch, int smem_bytes) {
  for (const Edit& edit : edits_of(variant.family)) {
    std::string* text = edit.file[0] == '\0' ? &bundle.main.text : nullptr;
    for (jit::SourceFile& header : bundle.headers)
      if (header.name == edit.file) text = &header.text;
    const auto at = text != nullptr ? text->find(edit.line) : std::string::npos;
    if (at == std::string::npos || text->find(edit.line, at + 1) != std::string::npos) {
      return fail(ErrorCode::not_found,
                  fmt::format("tracing {}: this is not in {} exactly once: {}", variant.family,
                              edit.file[0] == '\0' ? "the template" : edit.file, edit.line));
    }
    text->insert(edit.where == Where::before ? at : at + std::string(edit.line).size(), edit.text);
  }
  jit::CompileJob job = jit::make_job(bundle, variant, arch);
  job.source = fmt::format(
                   "#define TRACE_AT {}\n#define TRACE_EVENTS {}\n#define TRACE_TILES {}\n"
                   "#define TRACE_WORDS {}\n#define TRACE_BEGIN {}\n#define TRACE_END {}\n"
                   "#define TRACE_DUMP {}\n",
                   smem_bytes, kEventsPerTile, kMostTiles, kTraceWords, kBegin, kEnd, kTraceAt) +
               kMacros + job.source;
  return job;
}

std::string trace_table(std::span<const std::uint32_t> words, int tiles) {
  const std::size_t blocks = words.size() / kTraceWords;
  const auto median = [&](int word, int since) {
    std::vector<std::uint32_t> clocks;
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto of = words.subspan(block * kTraceWords, kTraceWords);
      clocks.push_back(of[static_cast<std::size_t>(word)] - of[static_cast<std::size_t>(since)]);
    }
    const auto middle = clocks.begin() + static_cast<std::ptrdiff_t>(clocks.size() / 2);
    std::nth_element(clocks.begin(), middle, clocks.end());
    return *middle;
  };
  // The last slot holds whatever tile came last.
  const int shown = std::min(tiles, kMostTiles - 1);
  std::string table = fmt::format("block: {} clocks\nmean of tiles 2 to {}; then each tile\n",
                                  median(kEnd, kBegin), shown - 1);
  for (int event = 0; event < kEventsPerTile; ++event) {
    const Event& e = kEvents[static_cast<std::size_t>(event)];
    const bool begins = std::string_view(e.step) == "begin";
    std::string line;
    double sum = 0;
    for (int tile = 0; tile < shown; ++tile) {
      const int word = tile * kEventsPerTile + event;
      const auto clocks = median(word, begins ? kBegin : word - 1);
      if (tile >= 2) sum += begins ? median(word, word - kEventsPerTile) : clocks;
      line += fmt::format(" {:>6}", clocks);
    }
    table +=
        fmt::format("{:<9} {:<22} {:>6.0f} |{}\n", e.role, begins ? "begin; tile to tile" : e.step,
                    shown > 2 ? sum / (shown - 2) : 0, line);
  }
  return table;
}

}  // namespace ingot::bench
