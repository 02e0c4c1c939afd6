#include "tests/support/safetensors_file.hpp"

#include "tests/support/made_checkpoint.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::size_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  SafetensorsFile file;
  file.header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  file.data = bytes.substr(8 + length);
  return file;
}

void SafetensorsFile::write(const std::filesystem::path& path) const {
  write_file(path, safetensors_bytes(header.dump(), data));
}

void SafetensorsFile::remove(const std::string& name) {
  const auto offsets =
      header.at(name).at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
  const std::size_t bytes = offsets.second - offsets.first;
  header.erase(name);
  data.erase(offsets.first, bytes);
  for (auto& [other, tensor] : header.items()) {
    auto& moved = tensor["data_offsets"];
    if (moved[0] < offsets.second) continue;
    moved = {moved[0].get<std::size_t>() - bytes, moved[1].get<std::size_t>() - bytes};
  }
}

void SafetensorsFile::add(const std::string& name, const std::string& dtype,
                          const nlohmann::json& shape, const std::string& bytes) {
  header[name] = {{"dtype", dtype},
                  {"shape", shape},
                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data += bytes;
}

}  // namespace ingot::test
