#include "src/cli/local_cards.hpp"

#include <algorithm>

#include "runtime/base/shared_library.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/driver_branch.hpp"
#include "runtime/jit/arch.hpp"

namespace ingot {
namespace {

void add(std::vector<Card>& cards, Card card) {
  const bool known = std::any_of(cards.begin(), cards.end(), [&](const Card& other) {
    return other.device == card.device && other.limits == card.limits;
  });
  if (!known) cards.push_back(std::move(card));
}

}  // namespace

Result<Card> card_of(const cu::DriverApi& driver, const cu::DeviceInfo& device) {
  const auto arch = jit::arch_of(device.compute_major, device.compute_minor);
  if (!arch) return tl::unexpected(arch.error());
  return Card{
      .limits = cu::limits_of(device),
      .device = {.name = device.name,
                 .arch = *arch,
                 .sm_count = device.sm_count,
                 .driver_branch = cu::driver_branch(cu::driver_module_text(), driver.version())}};
}

Result<std::vector<Card>> local_cards(const KernelCacheOptions& options) {
  const auto driver = cu::DriverApi::open(library_search_path(options.library_dirs));
  if (!driver) return tl::unexpected(driver.error());
  std::vector<Card> cards;
  for (const cu::DeviceInfo& info : cu::list_devices(**driver)) {
    auto card = card_of(**driver, info);
    if (!card) return tl::unexpected(card.error());
    add(cards, std::move(*card));
  }
  return cards;
}

Result<std::vector<Card>> recorded_cards(const TuningStore& records, const std::string& arch,
                                         int tp_size) {
  const auto limits = cu::limits_of_arch(arch);
  if (!limits) return tl::unexpected(limits.error());
  std::vector<Card> cards;
  for (const TuningRecord& record : records.all()) {
    if (record.key.device.arch != arch || record.key.tp_size != tp_size) continue;
    Card card{.limits = *limits, .device = record.key.device};
    card.limits.sm_count = card.device.sm_count;
    add(cards, std::move(card));
  }
  return cards;
}

}  // namespace ingot
