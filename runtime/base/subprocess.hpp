#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/file_descriptor.hpp"

namespace ingot {

/// A child process that talks to us in frames over one channel. Its standard output and error go to
/// memory and can be asked for when it failed; its standard input is empty. It is killed and reaped
/// when the object goes. One thread at a time.
class Subprocess {
 public:
  /// The descriptor under which a child finds its end of the channel.
  static constexpr int kChildChannel = 3;

  /// Starts `command`: the program's path, then its arguments. Safe in a process with threads and a
  /// GPU context (nothing of ours runs between fork and exec). The child has a process group of its
  /// own: a terminal's Ctrl-C reaches us alone, and the child ends with its channel. Error: io.
  [[nodiscard]] static Result<Subprocess> spawn(const std::vector<std::string>& command);

  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();

  int channel() const { return channel_.get(); }
  pid_t pid() const { return pid_; }

  /// How the child ended: "exit status 3", "signal 11 (Segmentation fault)".
  struct End {
    int exit_status = -1;  ///< -1 when a signal ended it
    int signal = 0;
    std::string describe() const;
    /// Ended by a signal that others send, not by one that a program's own fault raises.
    bool was_killed() const;
  };
  /// Closes the channel and waits for the child to end.
  End wait();
  void kill();
  /// The end of what the child wrote to its standard output and error.
  std::string output_tail() const;

 private:
  Subprocess(pid_t pid, FileDescriptor channel, FileDescriptor output)
      : pid_(pid), channel_(std::move(channel)), output_(std::move(output)) {}

  pid_t pid_ = -1;
  FileDescriptor channel_;
  FileDescriptor output_;
};

/// Writes one frame (length, then bytes). False when the other side is gone.
bool write_frame(int channel, const std::string& bytes);

enum class FrameStatus { ok, closed, timed_out };
/// Reads one frame. Without `timeout` it waits as long as the other side lives.
FrameStatus read_frame(int channel, std::string& bytes,
                       std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace ingot
