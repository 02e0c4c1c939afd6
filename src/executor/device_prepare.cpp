// What the device engine makes ready before a step asks for it.
#include <exception>

#include "src/executor/device_engine_impl.hpp"
#include "src/plan/step_forecast.hpp"

namespace ingot {

bool DeviceEngine::Impl::is_prepared(const StepBucket& size) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].is_prepared(size)) return false;
  }
  return true;
}

bool DeviceEngine::Impl::prepare(const StepBucket& size) noexcept {
  std::atomic<bool> all = true;
  try {
    ranks.run([&](EngineRank& rank) {
      // A rank that throws here would end the engine. The step that needs this tries again, and
      // says what is wrong.
      try {
        if (!rank.prepare(size)) all = false;
      } catch (const std::exception&) {
        all = false;
      }
    });
  } catch (const std::exception&) {
    return false;  // it has ended before
  }
  return all;
}

bool DeviceEngine::prepare(const StepForecast& forecast) {
  Impl& e = *impl_;
  if (e.under_way) return false;
  for (const StepBucket& size : forecast_buckets(forecast, e.model_config.max_position_embeddings,
                                                 can_sample(e.model_config), e.deterministic)) {
    if (e.is_prepared(size) || e.left_alone.contains(size)) continue;
    if (!e.prepare(size)) e.left_alone.insert(size);
    return true;
  }
  return false;
}

}  // namespace ingot
