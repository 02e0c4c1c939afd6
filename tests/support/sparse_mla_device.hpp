#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/jit/kernel.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/sparse_mla.hpp"

namespace ingot::test {

inline KvLayout window_layout(const kernels::SparseMlaDecodeProblem& p) {
  return {p.window_page_entries, p.window_page_bytes, p.entry_stride, p.scales_beside};
}
inline KvLayout selected_layout(const kernels::SparseMlaDecodeProblem& p) {
  return {p.selected_page_entries, p.selected_page_bytes, p.entry_stride, p.scales_beside};
}

/// Inputs of the sparse MLA families on the device; a poisoned output; exchange buffers that must
/// stay as they are.
struct SparseMlaDevice {
  const cu::Context& context;
  const cu::Stream& stream;
  const SparseMlaInputs& in;
  cu::DeviceBuffer q, window_pool, selected_pool, window_indices, selected_indices, window_counts,
      selected_counts, sink, positions, frequencies, out, exchange_values, exchange_sums;

  SparseMlaDevice(const cu::Context& on, const cu::Stream& at, const SparseMlaInputs& inputs,
                  std::size_t value_bytes = std::size_t{64} << 20,
                  std::size_t sum_bytes = std::size_t{4} << 20)
      : context(on), stream(at), in(inputs) {
    q = to_device(on, at, in.q);
    window_pool = to_device(on, at, in.window_pool);
    selected_pool = to_device(on, at, in.selected_pool);
    window_indices = to_device(on, at, in.window_indices);
    selected_indices =
        to_device(on, at, in.selected_indices.empty() ? std::vector<int>{0} : in.selected_indices);
    window_counts = to_device(on, at, in.window_counts);
    selected_counts = to_device(on, at, in.selected_counts);
    sink = to_device(on, at, in.sink);
    positions = to_device(on, at, in.positions);
    frequencies = to_device(on, at, in.frequencies);
    out = cu::DeviceBuffer::allocate(on, in.q.size() * 2);
    exchange_values = cu::DeviceBuffer::allocate(on, value_bytes);
    exchange_sums = cu::DeviceBuffer::allocate(on, sum_bytes);
    exchange_values.fill_bytes(at, 0xff);
    exchange_sums.fill_bytes(at, 0xff);
    at.synchronize();
  }

  std::vector<std::uint16_t> run(const jit::Kernel& kernel, const cu::LaunchShape& shape) const {
    out.fill_bytes(stream, 0xff);
    kernel.launch(stream, shape,
                  kernels::SparseMlaDecodeArgs{.q = q.as<kernels::bf16>(),
                                               .window_pool = window_pool.as<kernels::u8>(),
                                               .selected_pool = selected_pool.as<kernels::u8>(),
                                               .window_indices = window_indices.as<int>(),
                                               .selected_indices = selected_indices.as<int>(),
                                               .window_counts = window_counts.as<int>(),
                                               .selected_counts = selected_counts.as<int>(),
                                               .sink = sink.as<float>(),
                                               .positions = positions.as<int>(),
                                               .frequencies = frequencies.as<float>(),
                                               .out = out.as<kernels::bf16>(),
                                               .exchange_values = exchange_values.as<float>(),
                                               .exchange_sums = exchange_sums.as<float>(),
                                               .rows = in.rows,
                                               .heads = in.heads,
                                               .window_slots = in.window_slots,
                                               .selected_slots = in.selected_slots});
    return to_host<std::uint16_t>(stream, out);
  }
  bool exchange_is_clean() const {
    const auto words = to_host<std::uint32_t>(stream, exchange_values);
    const auto sums = to_host<std::uint32_t>(stream, exchange_sums);
    const auto is_empty = [](std::uint32_t word) { return word == 0xffffffffU; };
    return std::all_of(words.begin(), words.end(), is_empty) &&
           std::all_of(sums.begin(), sums.end(), is_empty);
  }
};

}  // namespace ingot::test
