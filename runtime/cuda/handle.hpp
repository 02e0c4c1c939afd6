#pragma once

#include "runtime/cuda/driver_api.hpp"

namespace ingot::cu {

/// A driver object with the table that can destroy it. `driver` outlives the object.
template <class Raw>
struct Handle {
  Raw raw{};
  const DriverApi* driver = nullptr;

  explicit operator bool() const { return raw != Raw{}; }
};

}  // namespace ingot::cu
