#pragma once

#include "runtime/base/unique.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/handle.hpp"

namespace ingot::cu {

inline CUresult destroy_stream(const Handle<CUstream>& stream) {
  return stream.driver->cuStreamDestroy_v2(stream.raw);
}
inline CUresult destroy_event(const Handle<CUevent>& event) {
  return event.driver->cuEventDestroy_v2(event.raw);
}

class Stream;

/// A point in a stream's work. One thread at a time.
class Event {
 public:
  enum class Timing { off, on };
  static Event create(const Context& context, Timing timing);

  void record(const Stream& stream);
  void synchronize() const;
  /// Whether everything before the recorded point is done.
  bool is_done() const;
  /// Microseconds from `start` to here; both are recorded, finished and have timing on.
  float us_since(const Event& start) const;
  CUevent raw() const { return handle_.get().raw; }

 private:
  explicit Event(Handle<CUevent> handle) : handle_(handle) {}
  Unique<Handle<CUevent>, destroy_event> handle_;
};

/// An ordered queue of device work, never synchronised with the legacy default stream.
/// One thread at a time.
class Stream {
 public:
  static Stream create(const Context& context);

  void synchronize() const;
  /// Later work here waits for `event`.
  void wait(const Event& event) const;
  const DriverApi& driver() const { return *handle_.get().driver; }
  CUstream raw() const { return handle_.get().raw; }
  /// Whether the card knows programmatic dependent launch (sm_90 and later).
  bool has_programmatic_launch() const { return has_programmatic_launch_; }

 private:
  Stream(Handle<CUstream> handle, bool has_programmatic_launch)
      : handle_(handle), has_programmatic_launch_(has_programmatic_launch) {}
  Unique<Handle<CUstream>, destroy_stream> handle_;
  bool has_programmatic_launch_ = false;
};

}  // namespace ingot::cu
