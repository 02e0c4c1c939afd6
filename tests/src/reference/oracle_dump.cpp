#include "tests/src/reference/oracle_dump.hpp"

#include <zstd.h>

#include <cstring>
#include <optional>
#include <stdexcept>

#include "src/checkpoint/safetensors.hpp"
#include "src/reference/numerics.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {
namespace {

float element(Dtype dtype, const char* at) {
  if (dtype == Dtype::bf16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return reference::bf16_value(bits);
  }
  if (dtype == Dtype::i64) {
    std::int64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return static_cast<float>(value);
  }
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::size_t DumpTensor::width() const {
  std::size_t width = 1;
  for (std::size_t i = 1; i < shape.size(); ++i)
    width *= static_cast<std::size_t>(shape[i]);
  return width;
}

std::string decompress(const std::string& compressed) {
  const unsigned long long size = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw std::runtime_error("golden data is not one zstd frame");
  }
  std::string bytes(size, '\0');
  const std::size_t done =
      ZSTD_decompress(bytes.data(), bytes.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(done) != 0 || done != size) throw std::runtime_error("golden data is damaged");
  return bytes;
}

OracleDump::OracleDump(const std::filesystem::path& file) {
  std::string bytes = read_file(file);
  if (file.extension() == ".zst") bytes = decompress(bytes);
  Problems problems;
  const auto header =
      read_safetensors_header(std::as_bytes(std::span(bytes)), file.string(), problems);
  if (!header) throw std::runtime_error(problems.to_error("reading a golden").message);
  for (const SafetensorsEntry& entry : header->entries) {
    DumpTensor& tensor = tensors_[entry.name];
    tensor.shape = entry.shape;
    const auto width = static_cast<std::size_t>(dtype_bytes(entry.dtype));
    const char* at = bytes.data() + header->data_start + entry.begin;
    for (std::uint64_t i = entry.begin; i < entry.end; i += width, at += width) {
      tensor.values.push_back(element(entry.dtype, at));
    }
  }
  for (const float id : this->at("tokens").values)
    tokens_.push_back(static_cast<TokenId>(id));
  for (const float row : this->at("rows").values)
    rows_.push_back(static_cast<std::int64_t>(row));
}

const DumpTensor* OracleDump::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const DumpTensor& OracleDump::at(const std::string& name) const {
  const DumpTensor* tensor = find(name);
  if (tensor == nullptr) throw std::runtime_error("golden data has no tensor " + name);
  return *tensor;
}

}  // namespace ingot::test
