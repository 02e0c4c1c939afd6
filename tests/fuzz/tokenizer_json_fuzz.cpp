// Any bytes as tokenizer.json: refused with a message, or a tokenizer that gives back what it is
// given.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/text/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ingot::AddedTokens;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = ingot::Tokenizer::parse(json, "tokenizer.json");
  if (!tokenizer) {
    if (tokenizer.error().message.empty()) std::abort();
    return 0;
  }
  const std::string text =
      "abc aaaa 1234\r\n\t x<think></think><｜User｜>é 深度 😀 e\u0301 <ab>" +
      std::string(json.substr(0, json.size() / 4).begin(), json.substr(0, json.size() / 4).end());
  for (const AddedTokens added : {AddedTokens::as_text, AddedTokens::recognise}) {
    try {
      const auto ids = tokenizer->encode(text, added);
      for (const ingot::TokenId id : ids) {
        if (id < 0 || id >= tokenizer->size() || tokenizer->bytes(id).empty()) std::abort();
      }
    } catch (const ingot::EngineError&) {  // a pattern that backtracks without bound gives up
    }
  }
  return 0;
}
