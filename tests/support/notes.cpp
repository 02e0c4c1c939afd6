#include "tests/support/notes.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace ingot::test {
namespace {

constexpr int kMostRanks = 16;
std::array<std::atomic<const char*>, kMostRanks> notes{};

}  // namespace

void note(int rank, const char* what) {
  if (rank >= 0 && rank < kMostRanks) notes[static_cast<std::size_t>(rank)] = what;
}

void write_notes(int descriptor) {
  const auto say = [&](const char* text) {
    if (::write(descriptor, text, std::strlen(text)) < 0) ::_exit(125);
  };
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const char* what = notes[static_cast<std::size_t>(rank)];
    if (what == nullptr) continue;
    const char digits[] = {static_cast<char>('0' + rank / 10), static_cast<char>('0' + rank % 10),
                           0};
    say("  rank ");
    say(digits);
    say(": ");
    say(what);
    say("\n");
  }
}

}  // namespace ingot::test
