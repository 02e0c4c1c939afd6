#include "runtime/cuda/stream.hpp"

namespace ingot::cu {
namespace {

constexpr int kDefaultPriority = 0;

}  // namespace

Event Event::create(const Context& context, Timing timing) {
  const DriverApi& driver = context.driver();
  CUevent event = nullptr;
  driver.check(driver.cuEventCreate(
                   &event, timing == Timing::on ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
               "cuEventCreate");
  return Event({event, &driver});
}

void Event::record(const Stream& stream) {
  stream.driver().check(stream.driver().cuEventRecord(raw(), stream.raw()), "cuEventRecord");
}

void Event::synchronize() const {
  const DriverApi& driver = *handle_.get().driver;
  driver.check(driver.cuEventSynchronize(raw()), "cuEventSynchronize");
}

bool Event::is_done() const {
  const DriverApi& driver = *handle_.get().driver;
  const CUresult result = driver.cuEventQuery(raw());
  if (result == CUDA_ERROR_NOT_READY) return false;
  driver.check(result, "cuEventQuery");
  return true;
}

float Event::us_since(const Event& start) const {
  const DriverApi& driver = *handle_.get().driver;
  float milliseconds = 0;
  driver.check(driver.cuEventElapsedTime(&milliseconds, start.raw(), raw()), "cuEventElapsedTime");
  return milliseconds * 1000.0F;
}

Stream Stream::create(const Context& context) {
  const DriverApi& driver = context.driver();
  CUstream stream = nullptr;
  driver.check(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, kDefaultPriority),
               "cuStreamCreateWithPriority");
  return Stream({stream, &driver}, context.device().compute_major >= 9);
}

void Stream::synchronize() const {
  driver().check(driver().cuStreamSynchronize(raw()), "cuStreamSynchronize");
}

void Stream::wait(const Event& event) const {
  driver().check(driver().cuStreamWaitEvent(raw(), event.raw(), 0), "cuStreamWaitEvent");
}

}  // namespace ingot::cu
