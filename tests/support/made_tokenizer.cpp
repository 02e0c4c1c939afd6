#include "tests/support/made_tokenizer.hpp"

#include "tests/support/small_tokenizer.hpp"

namespace ingot::test {

nlohmann::ordered_json made_tokenizer() {
  auto json = nlohmann::ordered_json::parse(small_tokenizer_json());
  int id = 400;
  for (const char* word : {"ab", "abc", "aa", "aaaa"})
    json["model"]["vocab"][word] = id++;
  nlohmann::ordered_json merges = {"a b", "ab c", "a a", "aa aa"};
  for (const auto& merge : json["model"]["merges"])
    merges.push_back(merge);
  json["model"]["merges"] = merges;
  return json;
}

}  // namespace ingot::test
