// A stand-in for libnvrtc that the built program opens in tests: it knows sm_80 and sm_90, makes up
// cubins at once, and misbehaves where the source says so:
//   // fake: crash when TEXT     dies by SIGSEGV if TEXT is in front of this line
//   // fake: refuse when TEXT    reports a compile error
#include <signal.h>

#include <cstdint>
#include <cstring>
#include <string>

struct _nvrtcProgram {
  std::string source;
  std::string log;
  std::string cubin;
};

namespace {

constexpr int kSuccess = 0;
constexpr int kCompilationError = 6;
constexpr int kArchs[] = {80, 90};

/// Whether the source asks for `what` and its condition holds.
bool asks_for(const std::string& source, const std::string& what) {
  const std::string mark = "// fake: " + what + " when ";
  const std::size_t at = source.find(mark);
  if (at == std::string::npos) return false;
  const std::size_t begin = at + mark.size();
  const std::string condition = source.substr(begin, source.find('\n', begin) - begin);
  return source.substr(0, at).find(condition) != std::string::npos;
}

int copy_out(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return kSuccess;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(int result) {
  return result == kCompilationError ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS";
}
int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return kSuccess;
}
int nvrtcGetSupportedArchs(int* archs) {
  std::memcpy(archs, kArchs, sizeof kArchs);
  return kSuccess;
}
int nvrtcCreateProgram(_nvrtcProgram** program, const char* source, const char*, int,
                       const char* const*, const char* const*) {
  *program = new _nvrtcProgram{source, {}, {}};
  return kSuccess;
}
int nvrtcDestroyProgram(_nvrtcProgram** program) {
  delete *program;
  return kSuccess;
}
int nvrtcCompileProgram(_nvrtcProgram* program, int count, const char* const* options) {
  if (asks_for(program->source, "crash")) ::raise(SIGSEGV);
  if (asks_for(program->source, "refuse")) {
    program->log = "rms_norm.cuh(1): error: refused\n";
    return kCompilationError;
  }
  program->cubin =
      "\x7f"
      "ELF" +
      program->source;
  for (int i = 0; i < count; ++i)
    program->cubin += options[i];
  program->log =
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 32 registers, 16 bytes smem\n";
  return kSuccess;
}
int nvrtcGetCUBINSize(_nvrtcProgram* program, std::size_t* bytes) {
  *bytes = program->cubin.size();
  return kSuccess;
}
int nvrtcGetCUBIN(_nvrtcProgram* program, char* to) {
  return copy_out(program->cubin, to);
}
int nvrtcGetProgramLogSize(_nvrtcProgram* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kSuccess;
}
int nvrtcGetProgramLog(_nvrtcProgram* program, char* to) {
  to[program->log.size()] = '\0';
  return copy_out(program->log, to);
}

}  // extern "C"
