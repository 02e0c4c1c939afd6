// Run by the build: writes the C++ file that holds every template as text, or the header that
// includes every family's .space.hpp.
//   embed_templates sources OUTPUT ROOT FILE…
//   embed_templates headers OUTPUT STEM…
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr const char* kDelimiter = "INGOT_FILE";

std::string read_whole(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw std::runtime_error("cannot read " + file.string());
  if (text.find(std::string(")") + kDelimiter + "\"") != std::string::npos) {
    throw std::runtime_error(file.string() + " contains the delimiter of its own literal");
  }
  return text;
}

std::string sources(const std::filesystem::path& root, const std::vector<std::string>& files) {
  std::string out =
      "#include \"kernel_templates/family.hpp\"\n\nnamespace ingot::kernels {\n\n"
      "jit::SourceTree embedded_templates() {\n  return jit::SourceTree({\n";
  for (const std::string& file : files) {
    const auto name = std::filesystem::weakly_canonical(file).lexically_relative(
        std::filesystem::weakly_canonical(root));
    out += "      {\"" + name.generic_string() + "\", R\"" + kDelimiter + "(" + read_whole(file) +
           ")" + kDelimiter + "\"},\n";
  }
  return out + "  });\n}\n\n}  // namespace ingot::kernels\n";
}

std::string headers(const std::vector<std::string>& stems) {
  std::string out = "#pragma once\n\n";
  for (const std::string& stem : stems) {
    out += "#include \"kernel_templates/" + stem + ".space.hpp\"\n";
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::string text;
  if (words.size() >= 3 && words[0] == "sources") {
    text = sources(words[2], {words.begin() + 3, words.end()});
  } else if (words.size() >= 2 && words[0] == "headers") {
    text = headers({words.begin() + 2, words.end()});
  } else {
    throw std::runtime_error("usage: see the first lines of embed_templates.cpp");
  }
  std::ofstream out(words[1], std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + words[1]);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "embed_templates: " << error.what() << '\n';
  return 1;
}
