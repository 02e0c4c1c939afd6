#include "src/cli/synth_command.hpp"

#include "runtime/base/log.hpp"
#include "src/cli/byte_progress.hpp"

namespace ingot {

int run_synth(const SynthOptions& options) {
  std::uint64_t bytes = 0;
  {
    ByteProgress progress("writing", Progress::standard_error());
    value_or_throw(write_synthetic_checkpoint(options, [&](std::uint64_t done, std::uint64_t all) {
      bytes = all;
      progress.update(done, all);
    }));
  }
  log::info("wrote {} ({} bytes of weights)", options.out.string(), bytes);
  return 0;
}

}  // namespace ingot
