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

Result<std::vector<Card>> local_cards(const KernelCacheOptions& options) {
  std::vector<std::filesystem::path> directories = options.library_dirs;
  for (auto& usual : usual_library_directories())
    directories.push_back(std::move(usual));
  const auto driver = cu::DriverApi::open(directories);
  if (!driver) return tl::unexpected(driver.error());
  const std::string branch = cu::driver_branch(cu::driver_module_text(), (*driver)->version());
  std::vector<Card> cards;
  for (const cu::DeviceInfo& info : cu::list_devices(**driver)) {
    const auto arch = jit::arch_of(info.compute_major, info.compute_minor);
    if (!arch) return tl::unexpected(arch.error());
    add(cards, {.limits = cu::limits_of(info),
                .device = {.name = info.name,
                           .arch = *arch,
                           .sm_count = info.sm_count,
                           .driver_branch = branch}});
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
