#include "runtime/base/error.hpp"

namespace ingot {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::corrupt:
    case ErrorCode::unsupported:
      return 2;
    case ErrorCode::compile_failed:
    case ErrorCode::exhausted:
    case ErrorCode::io:
    case ErrorCode::cuda:
    case ErrorCode::nccl:
      return 1;
  }
  return 1;
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::not_found:
      return "not found";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::compile_failed:
      return "compile failed";
    case ErrorCode::exhausted:
      return "exhausted";
    case ErrorCode::io:
      return "input/output";
    case ErrorCode::cuda:
      return "CUDA";
    case ErrorCode::nccl:
      return "NCCL";
  }
  return "unknown";
}

}  // namespace ingot
