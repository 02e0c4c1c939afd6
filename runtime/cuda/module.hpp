#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/unique.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/handle.hpp"

namespace ingot::cu {

inline CUresult unload_module(const Handle<CUmodule>& module) {
  return module.driver->cuModuleUnload(module.raw);
}

/// A cubin loaded into the current context. Functions taken from it are valid as long as it lives.
class Module {
 public:
  /// `name` is for messages. Throws EngineError(cuda) when the driver refuses the image (another
  /// architecture, a driver older than the compiler).
  static Module load(const Context& context, std::span<const std::byte> cubin,
                     const std::string& name);

  /// Throws EngineError(not_found) when the module has no such extern "C" kernel.
  CUfunction function(const std::string& symbol) const;
  /// The address of an extern "C" __device__ variable; nothing when the module has none of the
  /// name.
  std::optional<CUdeviceptr> global(const std::string& symbol) const;
  const DriverApi& driver() const { return *handle_.get().driver; }

 private:
  Module(Handle<CUmodule> handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  Unique<Handle<CUmodule>, unload_module> handle_;
  std::string name_;
};

}  // namespace ingot::cu
