#include "src/cli/doctor_checks.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/cli/builtin_model.hpp"
#include "src/cli/device.hpp"
#include "src/text/tokenizer.hpp"
#include "src/weights/open_checkpoint.hpp"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

double gib(double bytes) {
  return bytes / (1024.0 * 1024.0 * 1024.0);
}

/// The value behind "key : value" in a file of /proc.
std::string proc_field(const char* file, std::string_view key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

Finding examine_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  std::string model = proc_field("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unnamed";
  return {"cpu", State::good, fmt::format("{}, {} usable", model, usable), ""};
}

Finding examine_memory() {
  const auto kib = [](std::string_view key) {
    const std::string text = proc_field("/proc/meminfo", key);
    return text.empty() ? 0.0 : std::strtod(text.c_str(), nullptr) * 1024.0;
  };
  return {"memory", State::good,
          fmt::format("{:.1f} GiB, {:.1f} GiB free for use", gib(kib("MemTotal")),
                      gib(kib("MemAvailable"))),
          ""};
}

/// The nearest folder above `path` that is there.
fs::path existing_parent(fs::path path) {
  std::error_code error;
  while (!path.empty() && !fs::exists(path, error)) {
    const fs::path parent = path.parent_path();
    if (parent == path) break;
    path = parent;
  }
  return path.empty() ? fs::path(".") : path;
}

Finding examine_cache(const Settings& settings) {
  if (settings.cache_dir.empty()) {
    return {"cache folder", State::absent, "neither XDG_CACHE_HOME nor HOME is set",
            "set one of them, or cache.dir in a settings file; without it nothing is kept"};
  }
  const fs::path folder = existing_parent(settings.cache_dir);
  struct statvfs disk {};
  const double free_bytes =
      ::statvfs(folder.c_str(), &disk) == 0
          ? static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize)
          : 0;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return {"cache folder", State::absent, fmt::format("{} is not a folder", folder.string()),
            "name another with --cache-dir"};
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return {"cache folder", State::absent,
            fmt::format("{}: cannot be written: {}", settings.cache_dir, std::strerror(errno)),
            "name another with --cache-dir; without it nothing is kept"};
  }
  return {"cache folder", State::good,
          fmt::format("{}, {:.1f} GiB free", settings.cache_dir, gib(free_bytes)), ""};
}

/// @param name  of the finding: whether it is the named model or the built-in one
std::vector<Finding> examine_model(const std::string& name, const std::string& folder) {
  std::vector<Finding> findings;
  const auto checkpoint = open_checkpoint(folder);
  if (!checkpoint) {
    findings.push_back(
        {name, State::bad, checkpoint.error().message, "`ingot inspect` shows all that is wrong"});
    return findings;
  }
  std::size_t bytes = 0;
  for (const TensorView& tensor : checkpoint->tensors())
    bytes += tensor.bytes.size();
  findings.push_back(
      {name, State::good,
       fmt::format("{}: {} layers, {} tensors, {:.2f} GiB", folder, checkpoint->config().num_layers,
                   checkpoint->tensors().size(), gib(static_cast<double>(bytes))),
       ""});
  const auto tokenizer = Tokenizer::load(folder);
  if (tokenizer) {
    findings.push_back(
        {"tokenizer", State::good, fmt::format("{} token ids", tokenizer->size()), ""});
  } else {
    findings.push_back({"tokenizer", State::absent, tokenizer.error().message,
                        "without it only commands that take token ids work"});
  }
  return findings;
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (Finding& finding : more)
    findings.push_back(std::move(finding));
}

}  // namespace

std::vector<Finding> examine(const Settings& settings, const Environment& environment) {
  std::vector<Finding> findings{examine_cpu(), examine_memory()};
  append(findings, examine_gpus(environment));
  findings.push_back(examine_cache(settings));
  const auto devices = device_list(settings.devices, static_cast<int>(settings.tp_size));
  const Result<DeviceChoice> device =
      devices ? choose_device(settings.device, *devices, environment) : Unexpected(devices.error());
  if (device) {
    findings.push_back({"device", State::good, device->reason, ""});
  } else {
    findings.push_back({"device", State::bad, device.error().message, "use --device cpu"});
  }
  if (!settings.model.empty()) {
    append(findings, examine_model("model", settings.model));
  } else if (const auto builtin = find_builtin_model(environment.program)) {
    append(findings, examine_model("built-in model", builtin->string()));
  } else {
    findings.push_back({"built-in model", State::absent, builtin.error().message,
                        "without it commands need --model"});
  }
  return findings;
}

}  // namespace ingot
