#include "runtime/jit/kernel.hpp"

namespace ingot::jit {

Kernel Kernel::load(const cu::Context& context, std::span<const std::byte> cubin,
                    const std::string& symbol) {
  auto module = std::make_shared<const cu::Module>(cu::Module::load(context, cubin, symbol));
  const cu::CUfunction function = module->function(symbol);
  const cu::DriverApi& driver = context.driver();
  int fixed_bytes = 0;
  driver.check(
      driver.cuFuncGetAttribute(&fixed_bytes, cu::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function),
      "cuFuncGetAttribute(SHARED_SIZE_BYTES)");
  cu::allow_dynamic_smem(driver, function, context.device().smem_per_block_bytes - fixed_bytes);
  return Kernel(std::move(module), function, symbol);
}

void Kernel::prefer_shared_memory(const cu::Context& context) const {
  constexpr int kPercent = 100;
  context.driver().check(
      context.driver().cuFuncSetAttribute(
          function_, cu::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kPercent),
      "cuFuncSetAttribute(PREFERRED_SHARED_MEMORY_CARVEOUT)");
}

}  // namespace ingot::jit
