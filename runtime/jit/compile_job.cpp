#include "runtime/jit/compile_job.hpp"

namespace ingot::jit {

std::vector<std::string> canonical_options() {
  return {
      "-default-device",     // constexpr and inline functions of shared headers run on the device
      "--std=c++20",         // as the host code that includes the argument headers
      "--ptxas-options=-v",  // the log holds registers, spills and shared memory
  };
}

std::string template_name(const std::string& family) {
  return family + ".cuh";
}

CompileJob make_job(const SourceBundle& bundle, const Variant& variant, const std::string& arch) {
  return {.name = bundle.main.name,
          .arch = arch,
          .source = param_block(variant.params, bundle.main.name) + bundle.main.text,
          .headers = bundle.headers,
          .options = canonical_options()};
}

}  // namespace ingot::jit
