#pragma once

namespace ingot::test::emulator {

/// When the threads of a launch let its successor onto the card.
struct LaunchOrder {
  int before_turn = 0;
  int after_turn = 0;
  int never_waited = 0;  ///< threads that ended without waiting for their turn
};

/// Of rope_kv_append that normalises the query latent, too, for `tokens` tokens.
LaunchOrder kv_append_with_latent_order(int tokens);

}  // namespace ingot::test::emulator
