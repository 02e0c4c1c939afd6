#include "src/text/terminal_text.hpp"

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// U+2400 + code: SYMBOL FOR NULL and so on.
std::string picture(unsigned char control) {
  const unsigned code = control == 0x7F ? 0x2421u : 0x2400u + control;
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::string for_terminal(std::string_view given) {
  // A byte of its own beyond ASCII could be a control of eight bits.
  std::string mended;
  const std::string_view text = mend_utf8(given, mended);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += picture(byte);
    } else if (byte == 0xC2 && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
               static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      out += "\xEF\xBF\xBD";  // a C1 control: some terminals obey these too
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace ingot
