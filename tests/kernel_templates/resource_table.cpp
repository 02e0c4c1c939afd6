#include "tests/kernel_templates/resource_table.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "tests/support/temp_dir.hpp"

namespace ingot::test {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, '\t');)
    cells.push_back(cell);
  return cells;
}

}  // namespace

std::filesystem::path resource_table_path(const std::string& stem) {
  return golden_dir() / "kernel_templates" / (stem + ".tsv");
}

ResourceTable ResourceTable::read(const std::filesystem::path& file) {
  ResourceTable table;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto cells = cells_of(line);
    if (cells.size() == 2 && cells[0] == "digest") {
      table.digest = cells[1];
    } else if (cells.size() == 2 && cells[0] == "compiler") {
      table.compiler = cells[1];
    } else if (cells.size() == 7 && cells[0].starts_with("sm_")) {
      table.rows[cells[0]] = {.resources = {.registers = std::stoi(cells[1]),
                                            .spill_store_bytes = std::stoi(cells[2]),
                                            .spill_load_bytes = std::stoi(cells[3]),
                                            .stack_bytes = std::stoi(cells[4]),
                                            .smem_bytes = std::stoi(cells[5])},
                              .seconds = std::stod(cells[6])};
    } else if (cells.empty() || cells[0] != "variant") {
      throw std::runtime_error(fmt::format("{}: cannot read \"{}\"", file.string(), line));
    }
  }
  return table;
}

void ResourceTable::write(const std::filesystem::path& file) const {
  std::filesystem::create_directories(file.parent_path());
  std::string text = fmt::format("digest\t{}\ncompiler\t{}\n", digest, compiler);
  text +=
      "variant\tregisters\tspill store bytes\tspill load bytes\tstack bytes\tstatic shared bytes\t"
      "compile seconds\n";
  for (const auto& [variant, row] : rows) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{:.2f}\n", variant, row.resources.registers,
                        row.resources.spill_store_bytes, row.resources.spill_load_bytes,
                        row.resources.stack_bytes, row.resources.smem_bytes, row.seconds);
  }
  write_file(file, text);
}

}  // namespace ingot::test
