#include "src/checkpoint/flavour.hpp"

#include <array>

namespace ingot {
namespace {

/// What tells the published models apart. Source: model specification 1.2.
struct Published {
  const char* name;
  int layers, hidden, heads, q_lora_rank, o_groups, experts, intermediate, index_topk;
  DraftKind draft;
};

constexpr std::array<Published, 3> kPublished{{
    {"DeepSeek-V4-Flash", 43, 4096, 64, 1024, 8, 256, 2048, 512, DraftKind::mtp},
    {"DeepSeek-V4-Flash-0731", 43, 4096, 64, 1024, 8, 256, 2048, 512, DraftKind::dspark},
    {"DeepSeek-V4-Pro", 61, 7168, 128, 1536, 16, 384, 3072, 1024, DraftKind::mtp},
}};

}  // namespace

std::string model_flavour(const ModelConfig& config) {
  for (const Published& model : kPublished) {
    if (config.num_layers == model.layers && config.hidden_size == model.hidden &&
        config.num_heads == model.heads && config.q_lora_rank == model.q_lora_rank &&
        config.o_groups == model.o_groups && config.num_experts == model.experts &&
        config.moe_intermediate_size == model.intermediate &&
        config.index_topk == model.index_topk && config.draft == model.draft) {
      return model.name;
    }
  }
  return "DeepSeek-V4, own sizes";
}

}  // namespace ingot
