#include "runtime/comm/peer_check.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/stream.hpp"

namespace ingot {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kWords = 1 << 18;  // 1 MiB: more than one transaction of any link

/// False where the stream is not done in time.
bool await(const cu::Context& context, const cu::Stream& stream) {
  auto end = cu::Event::create(context, cu::Event::Timing::off);
  end.record(stream);
  const auto start = std::chrono::steady_clock::now();
  while (!end.is_done()) {
    if (std::chrono::steady_clock::now() - start > kPatience) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void copy(const cu::Stream& stream, cu::CUdeviceptr to, cu::CUdeviceptr from, std::size_t bytes) {
  const cu::DriverApi& driver = stream.driver();
  driver.check(driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()), "cuMemcpyDtoDAsync");
}

std::string pair_text(const cu::Context& from, const cu::Context& to) {
  return fmt::format("gpu {} ({}) and the memory of gpu {} ({})", from.device().ordinal,
                     from.device().bus_id, to.device().ordinal, to.device().bus_id);
}

Error refusal(const cu::Context& from, const cu::Context& to, std::string_view what) {
  return {ErrorCode::unsupported,
          fmt::format("{}: {}; likely PCIe access control (ACS) or an IOMMU that is on: turn both "
                      "off for these slots in the BIOS or on the kernel's command line",
                      pair_text(from, to), what)};
}

}  // namespace

Result<void> check_peers(const cu::Context& from, const cu::Context& to) {
  if (!from.can_access(to)) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: the driver allows no access; the cards hang on different roots of "
                            "the PCIe tree, or peer access is switched off (`nvidia-smi topo -p2p "
                            "r` shows it)",
                            pair_text(from, to)));
  }
  try {
    // Their order matters: the memory of `to` belongs to its context.
    to.make_current();
    const auto there = cu::DeviceBuffer::allocate(to, kWords * 4);
    from.enable_peer_access(to);
    from.make_current();
    const auto stream = cu::Stream::create(from);
    const auto out = cu::DeviceBuffer::allocate(from, kWords * 4);
    const auto back = cu::DeviceBuffer::allocate(from, kWords * 4);
    std::vector<std::uint32_t> words(kWords), seen(kWords);
    for (std::size_t i = 0; i < kWords; ++i)
      words[i] = static_cast<std::uint32_t>(i * 2654435761U + 12345U);
    out.copy_from_host(stream, std::as_bytes(std::span(words)));
    copy(stream, there.address(), out.address(), kWords * 4);
    copy(stream, back.address(), there.address(), kWords * 4);
    back.copy_to_host(stream, std::as_writable_bytes(std::span(seen)));
    if (!await(from, stream))
      return Unexpected(refusal(from, to, "a write and a read are not done after 10 seconds"));
    if (seen != words)
      return Unexpected(refusal(from, to, "what was written there reads back as something else"));
    return {};
  } catch (const EngineError& error) {
    return Unexpected(refusal(from, to, error.error().message));
  }
}

std::optional<std::string> find_broken_peers(const std::vector<cu::Context>& contexts) {
  std::optional<std::string> broken;
  for (const cu::Context& from : contexts) {
    for (const cu::Context& to : contexts) {
      if (broken || &from == &to) continue;
      if (const auto works = check_peers(from, to); !works) broken = works.error().message;
    }
  }
  if (!contexts.empty()) contexts.front().make_current();
  return broken;
}

}  // namespace ingot
