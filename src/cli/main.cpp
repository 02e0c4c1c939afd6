#include "src/cli/program.hpp"

int main(int argc, char** argv) {
  return ingot::run_program(argc, argv);
}
