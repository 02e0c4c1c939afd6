// Any bytes as config.json: refused, or a config whose tensor table and splits can be made.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/checkpoint/model_config.hpp"
#include "src/weights/tensor_table.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = ingot::parse_model_config(text, "config.json");
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  const auto table = ingot::tensor_table(*config);
  for (const int tp : ingot::valid_tp_sizes(*config)) {
    for (const ingot::TensorSpec& spec : table) {
      const ingot::TensorRange last = ingot::rank_range(spec, tp - 1, tp);
      if (last.rows() <= 0 || last.columns() <= 0 || last.row_end != spec.shape[0]) std::abort();
    }
  }
  return 0;
}
