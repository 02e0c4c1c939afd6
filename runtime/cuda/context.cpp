#include "runtime/cuda/context.hpp"

#include <fmt/format.h>

#include <utility>

namespace ingot::cu {
namespace {

int attribute(const DriverApi& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  driver.check(driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

DeviceInfo describe_device(const DriverApi& driver, int ordinal, CUdevice device) {
  DeviceInfo info;
  info.ordinal = ordinal;
  char text[256] = {};
  driver.check(driver.cuDeviceGetName(text, sizeof text, device), "cuDeviceGetName");
  info.name = text;
  driver.check(driver.cuDeviceGetPCIBusId(text, sizeof text, device), "cuDeviceGetPCIBusId");
  info.bus_id = text;
  CUuuid uuid{};
  driver.check(driver.cuDeviceGetUuid_v2(&uuid, device), "cuDeviceGetUuid");
  for (const char byte : uuid.bytes) {
    info.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  std::size_t memory = 0;
  driver.check(driver.cuDeviceTotalMem_v2(&memory, device), "cuDeviceTotalMem");
  info.memory_bytes = memory;
  const auto get = [&](CUdevice_attribute which) { return attribute(driver, device, which); };
  info.compute_major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.compute_minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.sm_count = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.l2_bytes = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.smem_per_block_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.smem_per_sm_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  info.registers_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  info.threads_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  info.has_clusters = get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  return info;
}

int device_count(const DriverApi& driver) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

}  // namespace

std::vector<DeviceInfo> list_devices(const DriverApi& driver) {
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < device_count(driver); ++ordinal) {
    CUdevice device = 0;
    driver.check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
    devices.push_back(describe_device(driver, ordinal, device));
  }
  return devices;
}

Context::Context(std::shared_ptr<const DriverApi> driver, DeviceInfo device, CUdevice handle,
                 CUcontext context)
    : driver_(std::move(driver)), device_(std::move(device)), handle_(handle), context_(context) {}

Context::Context(Context&& other) noexcept
    : driver_(std::move(other.driver_)),
      device_(std::move(other.device_)),
      handle_(other.handle_),
      context_(std::exchange(other.context_, nullptr)) {}

Context& Context::operator=(Context&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(context_, other.context_);
  return *this;
}

Context::~Context() {
  if (context_ != nullptr) (void)driver_->cuDevicePrimaryCtxRelease_v2(handle_);
}

Context Context::retain(std::shared_ptr<const DriverApi> driver, int ordinal) {
  const int count = device_count(*driver);
  if (ordinal < 0 || ordinal >= count) {
    throw EngineError(
        ErrorCode::invalid_argument,
        fmt::format("device {} does not exist: the driver shows {} device(s)", ordinal, count));
  }
  CUdevice device = 0;
  driver->check(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet");
  DeviceInfo info = describe_device(*driver, ordinal, device);
  CUcontext context = nullptr;
  driver->check(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Context retained(std::move(driver), std::move(info), device, context);
  retained.make_current();
  return retained;
}

void Context::make_current() const {
  driver_->check(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

void Context::synchronize() const {
  driver_->check(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
}

bool Context::can_access(const Context& peer) const {
  int can = 0;
  driver_->check(driver_->cuDeviceCanAccessPeer(&can, handle_, peer.handle_),
                 "cuDeviceCanAccessPeer");
  return can != 0;
}

void Context::enable_peer_access(const Context& peer) const {
  make_current();
  const CUresult result = driver_->cuCtxEnablePeerAccess(peer.context_, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
  driver_->check(result, "cuCtxEnablePeerAccess");
}

std::uint64_t Context::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  driver_->check(driver_->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return free;
}

}  // namespace ingot::cu
