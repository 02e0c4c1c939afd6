#include "src/weights/synth_tokenizer.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>
#include <system_error>

#include "runtime/base/mapped_file.hpp"

namespace ingot {
namespace {

namespace fs = std::filesystem;

/// @param origin names the file in messages
Result<std::string> decompress(std::span<const std::byte> packed, std::string_view origin) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // the real one has 6 MB
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  std::string out;
  std::string buffer(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer input{packed.data(), packed.size(), 0};
  std::size_t pending = 1;  // 0 at the end of a frame
  while (input.pos < input.size || pending != 0) {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    const std::size_t input_before = input.pos;
    pending = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(pending) != 0) {
      return fail(ErrorCode::corrupt, fmt::format("decompressing {}: {}; fetch the file again",
                                                  origin, ZSTD_getErrorName(pending)));
    }
    out.append(buffer.data(), output.pos);
    if (out.size() > kMostBytes) {
      return fail(ErrorCode::corrupt,
                  fmt::format("decompressing {}: it holds more than {} bytes; name a tokenizer",
                              origin, kMostBytes));
    }
    if (pending != 0 && output.pos == 0 && input.pos == input_before) {
      return fail(ErrorCode::corrupt,
                  fmt::format("decompressing {}: it is cut short; fetch the file again", origin));
    }
  }
  return out;
}

/// tokenizer.json, compressed or not, in a folder; or the file itself.
Result<fs::path> find_tokenizer(const fs::path& source) {
  std::error_code error;
  if (!fs::is_directory(source, error)) return source;
  for (const char* name : {"tokenizer.json", "tokenizer.json.zst"}) {
    if (fs::exists(source / name, error)) return source / name;
  }
  return fail(ErrorCode::not_found,
              fmt::format("looking for a tokenizer in {}: it holds neither tokenizer.json nor "
                          "tokenizer.json.zst; name one of them, or a folder with one",
                          source.string()));
}

}  // namespace

Result<std::vector<NamedText>> read_tokenizer_files(const fs::path& source) {
  const auto path = find_tokenizer(source);
  if (!path) return tl::unexpected(path.error());
  const auto file = MappedFile::open(*path);
  if (!file) return tl::unexpected(file.error());
  std::vector<NamedText> files;
  if (path->extension() == ".zst") {
    auto text = decompress(file->bytes(), path->string());
    if (!text) return tl::unexpected(text.error());
    files.push_back({"tokenizer.json", std::move(*text)});
  } else {
    files.push_back({"tokenizer.json", std::string(file->text())});
  }
  for (const char* name : {"tokenizer_config.json", "generation_config.json"}) {
    const auto beside = MappedFile::open(path->parent_path() / name);
    if (beside) {
      files.push_back({name, std::string(beside->text())});
    } else if (beside.error().code != ErrorCode::not_found) {
      return tl::unexpected(beside.error());
    }
  }
  return files;
}

}  // namespace ingot
