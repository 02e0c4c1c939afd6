#include "src/batch/id_set.hpp"

#include <xxhash.h>

namespace ingot {
namespace {

constexpr std::size_t kFirstPlaces = 64;

}  // namespace

IdSet::Hash IdSet::hash_of(std::string_view id, std::int64_t number) {
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(id.data(), id.size(), static_cast<std::uint64_t>(number));
  if (hash.low64 == 0 && hash.high64 == 0) return {1, 0};
  return {hash.low64, hash.high64};
}

// Where it is, or where it would go.
std::size_t IdSet::place_of(const std::vector<Hash>& places, const Hash& hash) {
  const std::size_t mask = places.size() - 1;
  std::size_t place = static_cast<std::size_t>(hash.low) & mask;
  while (places[place] != Hash{} && places[place] != hash)
    place = (place + 1) & mask;
  return place;
}

void IdSet::grow() {
  std::vector<Hash> wider(places_.empty() ? kFirstPlaces : 2 * places_.size());
  for (const Hash& hash : places_) {
    if (hash != Hash{}) wider[place_of(wider, hash)] = hash;
  }
  places_ = std::move(wider);
}

bool IdSet::insert(std::string_view id, std::int64_t number) {
  if (4 * (size_ + 1) > 3 * places_.size()) grow();
  const Hash hash = hash_of(id, number);
  Hash& place = places_[place_of(places_, hash)];
  if (place == hash) return false;
  place = hash;
  ++size_;
  return true;
}

bool IdSet::contains(std::string_view id, std::int64_t number) const {
  if (places_.empty()) return false;
  const Hash hash = hash_of(id, number);
  return places_[place_of(places_, hash)] == hash;
}

}  // namespace ingot
