#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace ingot {

/// What kind of thing went wrong. `exit_status()` maps it to the program's exit status.
enum class ErrorCode {
  invalid_argument,  ///< the caller, or the user on the command line, asked for something
                     ///< impossible
  not_found,         ///< a file, tensor, library or symbol is missing
  corrupt,           ///< outside bytes contradict themselves or their format
  unsupported,       ///< well-formed, but a flavour, version or device that we do not run
  compile_failed,    ///< NVRTC refused a kernel; `Error::log` holds its words
  exhausted,         ///< room that was set aside, such as pages of context, is used up
  io,                ///< the operating system refused to read, write or map
  cuda,              ///< the driver returned an error
  nccl,              ///< NCCL returned an error
};

/// The one error of the project. `message` is one line: what was attempted, on what, why it failed
/// and, where the user can do something about it, what to do.
struct Error {
  ErrorCode code;
  std::string message;
  std::string log = {};
  std::source_location where = std::source_location::current();
};

/// Returned where the caller has a second choice (a candidate does not compile, a file is bad).
/// Functions that return it are [[nodiscard]].
template <class T>
using Result = tl::expected<T, Error>;

using Unexpected = tl::unexpected<Error>;

/// Shorthand for `return fail(ErrorCode::corrupt, fmt::format(...))` in a function returning
/// Result.
[[nodiscard]] inline Unexpected fail(ErrorCode code, std::string message,
                                     std::source_location where = std::source_location::current()) {
  return Unexpected(Error{code, std::move(message), {}, where});
}

/// Thrown where the caller has no second choice (driver, NCCL, a broken invariant). `main` and each
/// rank thread catch it once and print it.
class EngineError : public std::exception {
 public:
  explicit EngineError(Error error) : error_(std::move(error)) {}
  EngineError(ErrorCode code, std::string message,
              std::source_location where = std::source_location::current())
      : error_{code, std::move(message), {}, where} {}

  const Error& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

/// The value, or EngineError thrown with the error inside.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw EngineError(std::move(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// 2 for wrong usage and bad input (invalid_argument, not_found, corrupt, unsupported), else 1.
int exit_status(ErrorCode code);

/// "invalid argument", "corrupt", …
std::string_view error_code_name(ErrorCode code);

}  // namespace ingot
