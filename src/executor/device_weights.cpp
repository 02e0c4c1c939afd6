#include "src/executor/device_weights.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/cuda/device_buffer.hpp"
#include "src/executor/synthetic_weights.hpp"
#include "src/executor/weight_layout.hpp"
#include "src/executor/weight_loader.hpp"
#include "src/executor/weight_store.hpp"

namespace ingot::executor {

struct DeviceWeights::Impl {
  cu::DeviceBuffer memory;
  WeightViews views;
};

namespace {

/// Bytes that DeviceWeights takes where the driver has so many.
DeviceWeightStore make_store(const cu::Context& context, std::uint64_t bytes) {
  const std::uint64_t free = context.free_bytes();
  if (bytes <= free) return DeviceWeightStore(context, bytes);
  throw EngineError(
      ErrorCode::cuda,
      fmt::format("the weights of a rank take {} bytes ({:.1f} GB) on device {} ({}), and {} "
                  "({:.1f} GB) are free; split the model over more devices",
                  bytes, static_cast<double>(bytes) / 1e9, context.device().ordinal,
                  context.device().name, free, static_cast<double>(free) / 1e9));
}

/// @param fill  (placement, store)
template <class Fill>
std::pair<cu::DeviceBuffer, WeightViews> make_weights(const cu::Context& context,
                                                      const ModelConfig& config,
                                                      const WeightOptions& options,
                                                      const Fill& fill) {
  const std::uint64_t bytes = device_weight_bytes(config, options);
  DeviceWeightStore store = make_store(context, bytes);
  WeightPlacement placement = place_weights(config, options, store.memory().address());
  fill(placement, store);
  return {store.release(), std::move(placement.views)};
}

/// What load() and synthetic() refuse with an Error; what a progress callback throws goes through.
class ProgressFailure {
 public:
  explicit ProgressFailure(const LoadProgress& progress) : progress_(progress) {}

  LoadProgress guarded() {
    if (!progress_) return {};
    return [this](std::uint64_t done, std::uint64_t total) {
      try {
        progress_(done, total);
      } catch (...) {
        thrown_ = true;
        throw;
      }
    };
  }
  bool thrown() const { return thrown_; }

 private:
  const LoadProgress& progress_;
  bool thrown_ = false;
};

}  // namespace

Result<DeviceWeights> DeviceWeights::load(const cu::Context& context, const Checkpoint& checkpoint,
                                          const WeightOptions& options,
                                          const LoadProgress& progress) {
  if (options.max_layers != 0 || options.expert_sets != 0 || options.threads < 1) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("loading a checkpoint with {} threads and at most {} layers: it takes "
                            "a thread at least, and is loaded whole (0 layers)",
                            options.threads, options.max_layers));
  }
  ProgressFailure watched(progress);
  try {
    auto [memory, views] =
        make_weights(context, checkpoint.config(), options,
                     [&](const WeightPlacement& placement, DeviceWeightStore& store) {
                       load_weights(checkpoint, placement, store, {.threads = options.threads},
                                    watched.guarded());
                     });
    return DeviceWeights(std::make_unique<Impl>(Impl{std::move(memory), std::move(views)}));
  } catch (const EngineError& error) {
    if (watched.thrown()) throw;
    return Unexpected(error.error());
  }
}

Result<DeviceWeights> DeviceWeights::synthetic(const cu::Context& context,
                                               const ModelConfig& config,
                                               const WeightOptions& options) {
  try {
    auto [memory, views] = make_weights(context, config, options, fill_synthetic);
    return DeviceWeights(std::make_unique<Impl>(Impl{std::move(memory), std::move(views)}));
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

DeviceWeights::DeviceWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceWeights::DeviceWeights(DeviceWeights&&) noexcept = default;
DeviceWeights& DeviceWeights::operator=(DeviceWeights&&) noexcept = default;
DeviceWeights::~DeviceWeights() = default;

const Bf16Matrix& DeviceWeights::embedding() const {
  return impl_->views.embedding;
}
int DeviceWeights::first_token() const {
  return impl_->views.first_token;
}
const Bf16Matrix& DeviceWeights::head() const {
  return impl_->views.head;
}
const kernels::bf16* DeviceWeights::norm() const {
  return impl_->views.norm;
}
const HyperConnection& DeviceWeights::hc_head() const {
  return impl_->views.hc_head;
}
const std::vector<Layer>& DeviceWeights::layers() const {
  return impl_->views.layers;
}
const DraftBlock* DeviceWeights::draft() const {
  return impl_->views.draft ? &*impl_->views.draft : nullptr;
}
const float* DeviceWeights::plain_frequencies() const {
  return impl_->views.plain_frequencies;
}
const float* DeviceWeights::compress_frequencies() const {
  return impl_->views.compress_frequencies;
}
std::uint64_t DeviceWeights::bytes() const {
  return impl_->memory.bytes();
}

std::uint64_t device_weight_bytes(const ModelConfig& config, const WeightOptions& options) {
  return place_weights(config, options, 0).bytes;
}

}  // namespace ingot::executor
