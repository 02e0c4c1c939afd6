#pragma once

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "src/checkpoint/checkpoint.hpp"

namespace ingot {

/// Which model a checkpoint is, cheaply enough to be asked at every start: the digest of
/// config.json, of the tokenizer's file, of every tensor's name, type and shape, and of bytes: all
/// of them up to 256 MiB, beyond that the first, middle and last 16 KiB of some 512 tensors that
/// lie evenly in the files. Checkpoints that differ in more than single weights have different
/// fingerprints; paths and times are not in it. Any thread. Errors: not_found, io.
[[nodiscard]] Result<Digest> model_fingerprint(const Checkpoint& checkpoint);

}  // namespace ingot
