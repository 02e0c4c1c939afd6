#include "tests/src/executor/emulated_model.hpp"

namespace ingot::test {

std::unique_ptr<DeviceEngine> emulated_engine(
    const std::vector<std::shared_ptr<const cu::DriverApi>>& drivers, const Checkpoint& checkpoint,
    int peer_limit_ms, int max_sequences) {
  std::vector<DeviceRank> ranks;
  for (std::size_t rank = 0; rank < drivers.size(); ++rank) {
    auto context = cu::Context::retain(drivers[rank], 0);
    auto weights =
        value_or_throw(executor::DeviceWeights::load(context, checkpoint,
                                                     {.tp_rank = static_cast<int>(rank),
                                                      .tp_size = static_cast<int>(drivers.size()),
                                                      .threads = 2}));
    ranks.push_back({std::move(context), std::move(weights)});
  }
  return std::make_unique<DeviceEngine>(std::move(ranks), checkpoint.config(), emulated_source(),
                                        DeviceOptions{.max_context = 2048,
                                                      .max_sequences = max_sequences,
                                                      .jobs = 2,
                                                      .graphs = false,
                                                      .shared_card = true,
                                                      .peer_limit_ms = peer_limit_ms});
}

}  // namespace ingot::test
