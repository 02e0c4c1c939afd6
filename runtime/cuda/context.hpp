#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver_api.hpp"

namespace ingot::cu {

/// What a card is, as far as kernels and plans care.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;    ///< "NVIDIA H200"
  std::string uuid;    ///< 32 hexadecimal digits
  std::string bus_id;  ///< "0000:1b:00.0"
  int compute_major = 0;
  int compute_minor = 0;
  int sm_count = 0;
  std::uint64_t memory_bytes = 0;
  int l2_bytes = 0;
  int smem_per_block_bytes = 0;  ///< the opt-in limit
  int smem_per_sm_bytes = 0;
  int registers_per_sm = 0;
  int threads_per_sm = 0;
  bool has_clusters = false;
};

/// Every device that the driver shows. Throws EngineError(cuda).
std::vector<DeviceInfo> list_devices(const DriverApi& driver);

/// One device's primary context, retained. Driver objects belong to the context that is current on
/// the calling thread: each rank's thread makes its own context current once and creates, uses and
/// destroys its objects there.
class Context {
 public:
  /// Retains the primary context of device `ordinal` and makes it current on this thread.
  /// Throws EngineError(invalid_argument) for an ordinal that does not exist, (cuda) otherwise.
  static Context retain(std::shared_ptr<const DriverApi> driver, int ordinal);

  Context(Context&& other) noexcept;
  Context& operator=(Context&& other) noexcept;
  ~Context();

  const DriverApi& driver() const { return *driver_; }
  const DeviceInfo& device() const { return device_; }

  void make_current() const;
  /// Waits for everything that was queued in this context, which must be current.
  void synchronize() const;
  /// Whether kernels here can load and store `peer`'s memory.
  bool can_access(const Context& peer) const;
  /// Lets kernels of this context use `peer`'s memory; asking twice is fine.
  void enable_peer_access(const Context& peer) const;
  std::uint64_t free_bytes() const;

 private:
  Context(std::shared_ptr<const DriverApi> driver, DeviceInfo device, CUdevice handle,
          CUcontext context);

  std::shared_ptr<const DriverApi> driver_;
  DeviceInfo device_;
  CUdevice handle_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace ingot::cu
