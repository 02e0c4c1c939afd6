#include <fmt/core.h>

int main() {
  fmt::print("ingot 0.1.0\n");
  return 0;
}
