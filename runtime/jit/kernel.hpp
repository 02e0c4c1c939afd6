#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/module.hpp"

namespace ingot::jit {

/// A kernel that is loaded on one card and can be launched there. Copies share the loaded code,
/// which stays as long as one of them lives.
class Kernel {
 public:
  /// Loads a cubin into the current context. Its one extern "C" kernel is named `symbol`; it may
  /// use all the dynamic shared memory that the card has left. Throws EngineError.
  static Kernel load(const cu::Context& context, std::span<const std::byte> cubin,
                     const std::string& symbol);

  /// `args` is the family's argument struct, copied during the call.
  template <class Args>
  void launch(const cu::Stream& stream, const cu::LaunchShape& shape, const Args& args) const {
    static_assert(std::is_trivially_copyable_v<Args> && std::is_standard_layout_v<Args>,
                  "kernel arguments are plain structs");
    cu::launch(stream, function_, shape, &args);
  }

  /// Asks for the largest share of shared memory on the multiprocessors that run this kernel. A
  /// kernel whose blocks wait for one another needs it: as many must be resident as the memory
  /// holds.
  void prefer_shared_memory(const cu::Context& context) const;

  /// The address of an extern "C" __device__ variable of the kernel's module, if it has one.
  std::optional<cu::CUdeviceptr> global(const std::string& symbol) const {
    return module_->global(symbol);
  }

  const std::string& name() const { return name_; }
  cu::CUfunction function() const { return function_; }

 private:
  Kernel(std::shared_ptr<const cu::Module> module, cu::CUfunction function, std::string name)
      : module_(std::move(module)), function_(function), name_(std::move(name)) {}

  std::shared_ptr<const cu::Module> module_;
  cu::CUfunction function_ = nullptr;
  std::string name_;
};

}  // namespace ingot::jit
