#include "runtime/base/compression.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>

namespace ingot {
namespace {

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

std::string zstd_compress(std::string_view bytes, int level) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  // Finds repetitions megabytes apart: a bundle's kernels share most of their source.
  if (level >= 10) ZSTD_CCtx_setParameter(context.get(), ZSTD_c_enableLongDistanceMatching, 1);
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(size)) {
    throw EngineError(ErrorCode::io, fmt::format("compressing {} bytes: {}", bytes.size(),
                                                 ZSTD_getErrorName(size)));
  }
  frame.resize(size);
  return frame;
}

Result<std::string> zstd_decompress(std::string_view frame, std::size_t most_bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    return fail(ErrorCode::corrupt, "not a zstd frame with a known size");
  }
  if (size > most_bytes) {
    return fail(ErrorCode::corrupt,
                fmt::format("a zstd frame says that it holds {} bytes; at most {} are expected",
                            size, most_bytes));
  }
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    return fail(ErrorCode::corrupt, "a zstd frame is cut off or has bytes behind it");
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) || got != bytes.size()) {
    return fail(ErrorCode::corrupt,
                fmt::format("decompressing: {}",
                            ZSTD_isError(got) ? ZSTD_getErrorName(got) : "wrong size"));
  }
  return bytes;
}

}  // namespace ingot
