// Any bytes as a tuning record's file, as they are, and as the content of one under a right digest:
// refused, or a record that encodes to one that reads the same and lies under a plain name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/hash.hpp"
#include "tuner/tuning_cache.hpp"

namespace {

void try_record(const std::string& bytes) {
  const auto record = ingot::decode_record(bytes, "fuzz");
  if (!record) {
    if (record.error().message.empty()) std::abort();
    return;
  }
  const std::string name = ingot::TuningCache::file_name(record->key);
  if (name.find('/') != std::string::npos) std::abort();
  if (record->chosen().standing != ingot::Standing::chosen || !(record->gain() >= 0)) std::abort();
  const auto again = ingot::decode_record(ingot::encode_record(*record), "fuzz");
  if (!again || *again != *record) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_record(bytes);
  // The digest keeps damage from the parser behind it; here that parser is wanted.
  try_record("{\"digest\":\"" + ingot::digest_of(bytes).hex() + "\",\"record\":" + bytes + "}\n");
  return 0;
}
