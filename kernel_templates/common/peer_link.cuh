#pragma once
// What host and device agree on about the memory that ranks leave words in for each other.
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int LINK_RANKS = 8;       // at most
constexpr int LINK_COUNTERS = 128;  // blocks of an exchange, at most

// A rank's status word, in the host's memory. Whatever is not LINK_GOOD ends all waiting.
constexpr u32 LINK_GOOD = 0;
constexpr u32 LINK_STOPPED = 1;    // by the host: another rank has failed
constexpr u32 LINK_TIMED_OUT = 2;  // by a kernel: a rank did not answer

// An exchange in parts, where ranks share a card and must take turns on it.
constexpr int EXCHANGE_SEND = 1;
constexpr int EXCHANGE_MIDDLE = 2;  // of two shots
constexpr int EXCHANGE_RECEIVE = 4;
constexpr int EXCHANGE_WHOLE = 7;

}  // namespace ingot::kernels
