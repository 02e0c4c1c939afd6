#include "tests/support/host_card.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ingot::test {
namespace {

using namespace cu;

constexpr auto kIllegalAddress = static_cast<CUresult>(700);  // CUDA_ERROR_ILLEGAL_ADDRESS
constexpr auto kUnjoined = static_cast<CUresult>(904);        // …STREAM_CAPTURE_UNJOINED

using Clock = std::chrono::steady_clock;

struct HostStream;

/// What stands behind a CUgraph and a CUgraphExec.
struct HostGraph {
  std::vector<std::function<void()>> nodes;
  std::vector<HostStream*> branches;  // streams whose work is recorded, too, while it is recorded
};

/// What stands behind a CUstream.
struct HostStream {
  std::deque<std::function<void()>> work;  // copies and fills
  std::size_t done = 0;                    // that were carried out and left the queue
  std::unique_ptr<HostGraph> recording;    // instead
  bool is_branch = false;                  // of another stream's recording

  void add(std::function<void()> one) {
    if (recording) {
      recording->nodes.push_back(std::move(one));
    } else {
      work.push_back(std::move(one));
    }
  }

  void run_until(std::size_t position) {
    for (; done < position; ++done) {
      work.front()();
      work.pop_front();
    }
  }
  void run() { run_until(done + work.size()); }
};

/// What stands behind a CUevent.
struct HostEvent {
  HostStream* stream = nullptr;
  std::size_t position = 0;
  std::shared_ptr<Clock::time_point> passed;
};

struct Card {
  std::mutex mutex;
  std::uint64_t memory_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::map<CUdeviceptr, std::size_t> blocks;
  std::atomic<int> live = 0;
  std::map<CUdevice_attribute, int> attributes;
  HostCard::Run run = nullptr;
  // Of all ranks, whose threads launch side by side.
  std::atomic<int> launches = 0;
  std::atomic<int> failing_launch = 0;  // 0: none
  std::atomic<bool> lost = false;
  std::map<CUfunction, std::size_t> argument_bytes;
};
Card* g_card = nullptr;  // driver functions have no other way to it

thread_local bool t_current = false;  // a context, on this thread

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  const std::lock_guard lock(g_card->mutex);
  if (!t_current) throw std::logic_error("no context is current");
  if (bytes > g_card->memory_bytes - g_card->used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xff, bytes);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  g_card->blocks[*address] = bytes;
  g_card->used_bytes += bytes;
  ++g_card->live;
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr address) {
  const std::lock_guard lock(g_card->mutex);
  const auto block = g_card->blocks.extract(address);
  if (block.empty()) throw std::logic_error("freeing what was not allocated");
  g_card->used_bytes -= block.mapped();
  --g_card->live;
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}

/// Copies lie inside one block.
void check_block(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(g_card->mutex);
  auto block = g_card->blocks.upper_bound(address);
  if (block == g_card->blocks.begin()) throw std::logic_error("an address before all blocks");
  --block;
  if (address + bytes > block->first + block->second)
    throw std::logic_error("a copy beyond its block");
}

CUresult enqueue(CUstream stream, void* to, const void* from, std::size_t bytes) {
  if (g_card->lost) return kIllegalAddress;
  if (!t_current) throw std::logic_error("no context is current");
  reinterpret_cast<HostStream*>(stream)->add([=] { std::memcpy(to, from, bytes); });
  return CUDA_SUCCESS;
}

void fill_device_functions(DriverApi& api) {
  api.cuGetErrorName = [](CUresult error, const char** name) {
    *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
  };
  api.cuGetErrorString = [](CUresult, const char** text) {
    *text = "an error of the host's card";
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetCount = [](int* count) {
    *count = 1;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetName = [](char* name, int, CUdevice) {
    std::strcpy(name, "host card");
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetPCIBusId = api.cuDeviceGetName;
  api.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice) {
    *uuid = {};
    return CUDA_SUCCESS;
  };
  api.cuDeviceTotalMem_v2 = [](std::size_t* bytes, CUdevice) {
    *bytes = g_card->memory_bytes;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    const auto known = g_card->attributes.find(attribute);
    *value = known == g_card->attributes.end() ? 0 : known->second;
    return CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    *context = reinterpret_cast<CUcontext>(g_card);
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) {
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuCtxSetCurrent = [](CUcontext context) {
    t_current = context != nullptr;
    return CUDA_SUCCESS;
  };
}

void fill_memory_functions(DriverApi& api) {
  api.cuMemGetInfo_v2 = [](std::size_t* free, std::size_t* total) {
    const std::lock_guard lock(g_card->mutex);
    *free = g_card->memory_bytes - g_card->used_bytes;
    *total = g_card->memory_bytes;
    return CUDA_SUCCESS;
  };
  api.cuMemAlloc_v2 = allocate;
  api.cuMemFree_v2 = release;
  api.cuMemHostAlloc = [](void** address, std::size_t bytes, unsigned) {
    *address = std::malloc(bytes);
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuMemFreeHost = [](void* address) {
    std::free(address);
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, std::size_t bytes,
                                CUstream stream) {
    check_block(to, bytes);
    return enqueue(stream, reinterpret_cast<void*>(to), from, bytes);
  };
  api.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    check_block(from, bytes);
    return enqueue(stream, to, reinterpret_cast<const void*>(from), bytes);
  };
  api.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                CUstream stream) {
    check_block(to, bytes);
    check_block(from, bytes);
    return enqueue(stream, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  };
}

void fill_stream_functions(DriverApi& api) {
  api.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    *stream = reinterpret_cast<CUstream>(new HostStream);
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuStreamDestroy_v2 = [](CUstream stream) {
    delete reinterpret_cast<HostStream*>(stream);
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuStreamSynchronize = [](CUstream stream) {
    if (g_card->lost) return kIllegalAddress;
    reinterpret_cast<HostStream*>(stream)->run();
    return CUDA_SUCCESS;
  };
  api.cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new HostEvent);
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuEventDestroy_v2 = [](CUevent event) {
    delete reinterpret_cast<HostEvent*>(event);
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuEventRecord = [](CUevent event, CUstream stream) {
    auto* behind = reinterpret_cast<HostStream*>(stream);
    auto passed = std::make_shared<Clock::time_point>();
    if (behind->recording) {
      *reinterpret_cast<HostEvent*>(event) = {behind, 0, passed};
      return CUDA_SUCCESS;
    }
    behind->work.push_back([passed] { *passed = Clock::now(); });
    *reinterpret_cast<HostEvent*>(event) = {behind, behind->done + behind->work.size(), passed};
    return CUDA_SUCCESS;
  };
  // What runs beside a stream's work does so as late as it may: where that stream waits for it.
  api.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    auto* waiting = reinterpret_cast<HostStream*>(stream);
    const HostEvent recorded = *reinterpret_cast<HostEvent*>(event);
    if (recorded.stream == nullptr) return CUDA_SUCCESS;
    if (!recorded.stream->recording) {
      waiting->add([recorded] { recorded.stream->run_until(recorded.position); });
    } else if (recorded.stream->is_branch) {
      auto& late = recorded.stream->recording->nodes;
      auto& nodes = waiting->recording->nodes;
      nodes.insert(nodes.end(), std::make_move_iterator(late.begin()),
                   std::make_move_iterator(late.end()));
      late.clear();
    } else if (!waiting->recording) {
      waiting->recording = std::make_unique<HostGraph>();
      waiting->is_branch = true;
      recorded.stream->recording->branches.push_back(waiting);
    }
    return CUDA_SUCCESS;
  };
  api.cuEventElapsedTime = [](float* milliseconds, CUevent start, CUevent end) {
    const auto& a = *reinterpret_cast<HostEvent*>(start);
    const auto& b = *reinterpret_cast<HostEvent*>(end);
    *milliseconds = std::chrono::duration<float, std::milli>(*b.passed - *a.passed).count();
    return CUDA_SUCCESS;
  };
  api.cuEventSynchronize = [](CUevent event) {
    const auto* recorded = reinterpret_cast<HostEvent*>(event);
    if (recorded->stream != nullptr) recorded->stream->run_until(recorded->position);
    return CUDA_SUCCESS;
  };
}

void fill_graph_functions(DriverApi& api) {
  api.cuStreamBeginCapture_v2 = [](CUstream stream, CUstreamCaptureMode) {
    reinterpret_cast<HostStream*>(stream)->recording = std::make_unique<HostGraph>();
    return CUDA_SUCCESS;
  };
  api.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
    auto recorded = std::move(reinterpret_cast<HostStream*>(stream)->recording);
    bool joined = true;
    for (HostStream* branch : std::exchange(recorded->branches, {})) {
      joined = joined && branch->recording->nodes.empty();
      branch->recording.reset();
      branch->is_branch = false;
    }
    if (!joined) return kUnjoined;
    *graph = reinterpret_cast<CUgraph>(recorded.release());
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuGraphGetNodes = [](CUgraph graph, CUgraphNode*, std::size_t* count) {
    *count = reinterpret_cast<HostGraph*>(graph)->nodes.size();
    return CUDA_SUCCESS;
  };
  api.cuGraphDestroy = [](CUgraph graph) {
    delete reinterpret_cast<HostGraph*>(graph);
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    *exec = reinterpret_cast<CUgraphExec>(new HostGraph(*reinterpret_cast<HostGraph*>(graph)));
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuGraphExecDestroy = [](CUgraphExec exec) {
    delete reinterpret_cast<HostGraph*>(exec);
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuGraphUpload = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  api.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    auto* behind = reinterpret_cast<HostStream*>(stream);
    behind->run();
    for (const auto& node : reinterpret_cast<HostGraph*>(exec)->nodes)
      node();
    return CUDA_SUCCESS;
  };
}

/// The bytes of an ELF file: its section headers lie last.
std::size_t elf_bytes(const std::byte* image) {
  std::uint64_t sections = 0;
  std::uint16_t entry_bytes = 0, entries = 0;
  std::memcpy(&sections, image + 0x28, sizeof(sections));
  std::memcpy(&entry_bytes, image + 0x3a, sizeof(entry_bytes));
  std::memcpy(&entries, image + 0x3c, sizeof(entries));
  return sections + std::size_t{entry_bytes} * entries;
}

/// Kernels are shared objects of the host; an image is the file of one.
void fill_kernel_functions(DriverApi& api) {
  api.cuModuleLoadData = [](CUmodule* module, const void* image) {
    std::string path = (std::filesystem::temp_directory_path() / "kernel-XXXXXX").string();
    const int file = mkstemp(path.data());
    const auto* bytes = static_cast<const std::byte*>(image);
    const std::size_t size = elf_bytes(bytes);
    const bool written = file >= 0 && write(file, bytes, size) == static_cast<ssize_t>(size);
    if (file >= 0) close(file);
    void* object = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    std::filesystem::remove(path);
    if (object == nullptr) throw std::runtime_error(written ? dlerror() : "writing " + path);
    *module = reinterpret_cast<CUmodule>(object);
    ++g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuModuleUnload = [](CUmodule module) {
    dlclose(reinterpret_cast<void*>(module));
    --g_card->live;
    return CUDA_SUCCESS;
  };
  api.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) {
    *function =
        reinterpret_cast<CUfunction>(dlsym(reinterpret_cast<void*>(module), "run_on_emulator"));
    if (*function == nullptr) throw std::runtime_error(dlerror());
    const auto* bytes = static_cast<const unsigned long*>(
        dlsym(reinterpret_cast<void*>(module), "arguments_bytes"));
    const std::lock_guard lock(g_card->mutex);
    g_card->argument_bytes[*function] = bytes == nullptr ? 0 : *bytes;
    return CUDA_SUCCESS;
  };
  api.cuModuleGetGlobal_v2 = [](CUdeviceptr*, std::size_t*, CUmodule, const char*) {
    return CUDA_ERROR_NOT_FOUND;
  };
  api.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  api.cuFuncGetAttribute = [](int* value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return CUDA_SUCCESS;
  };
  api.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** arguments,
                            void**) {
    if (++g_card->launches == g_card->failing_launch) g_card->lost = true;
    if (g_card->lost) return kIllegalAddress;
    auto* stream = reinterpret_cast<HostStream*>(config->hStream);
    if (!stream->recording) {
      stream->run();
      g_card->run(*config, reinterpret_cast<void*>(function), arguments[0]);
      return CUDA_SUCCESS;
    }
    const std::size_t bytes = [&] {
      const std::lock_guard lock(g_card->mutex);
      return g_card->argument_bytes.at(function);
    }();
    if (bytes == 0) throw std::logic_error("recording a kernel of unknown arguments");
    const auto* first = static_cast<const std::byte*>(arguments[0]);
    stream->recording->nodes.push_back(
        [function, kept = *config, args = std::vector<std::byte>(first, first + bytes),
         attributes = std::vector(config->attrs, config->attrs + config->numAttrs)]() mutable {
          kept.attrs = attributes.data();
          g_card->run(kept, reinterpret_cast<void*>(function), args.data());
        });
    return CUDA_SUCCESS;
  };
  api.cuMemsetD8Async = [](CUdeviceptr to, unsigned char value, std::size_t count,
                           CUstream stream) {
    check_block(to, count);
    reinterpret_cast<HostStream*>(stream)->add(
        [=] { std::memset(reinterpret_cast<void*>(to), value, count); });
    return CUDA_SUCCESS;
  };
}

}  // namespace

HostCard::HostCard(std::uint64_t memory_bytes, int multiprocessors, Run run) {
  if (g_card != nullptr) throw std::logic_error("two cards in the host's memory");
  g_card = new Card;
  g_card->memory_bytes = memory_bytes;
  g_card->run = run;
  // Otherwise a Hopper card.
  g_card->attributes = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, multiprocessors},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
  };
  auto api = std::make_shared<DriverApi>();
  fill_device_functions(*api);
  fill_memory_functions(*api);
  fill_stream_functions(*api);
  fill_graph_functions(*api);
  fill_kernel_functions(*api);
  driver_ = std::move(api);
}

HostCard::~HostCard() {
  delete g_card;
  g_card = nullptr;
}

void HostCard::fail_launch(int n) {
  g_card->failing_launch = g_card->launches + n;
}

int HostCard::launches() const {
  return g_card->launches;
}

int HostCard::live_objects() const {
  return g_card->live;
}

std::uint64_t HostCard::free_bytes() const {
  return g_card->memory_bytes - g_card->used_bytes;
}

}  // namespace ingot::test
