#include "src/weights/open_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/base/log.hpp"
#include "src/checkpoint/safetensors.hpp"

namespace ingot {
namespace {

/// Names under which the model keeps tensors: one more of them there is a part that we would
/// silently leave out, so it is refused. Anything else is foreign and ignored.
bool is_model_name(std::string_view name) {
  for (const std::string_view prefix : {"layers.", "embed.", "head.", "norm.", "hc_head"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

void check_tensor(const TensorView& tensor, const TensorSpec& spec, std::string_view file,
                  Problems& problems) {
  if (tensor.dtype != spec.dtype) {
    const bool fp8_expert = spec.kind == TensorKind::fp4 && tensor.dtype == Dtype::f8_e4m3;
    problems.add(ErrorCode::unsupported,
                 fmt::format("tensor {} of {} is {}, not {}{}", spec.name, file,
                             dtype_name(tensor.dtype), dtype_name(spec.dtype),
                             fp8_expert ? "; FP8 experts (-Base checkpoints) are not supported"
                                        : "; fetch an official checkpoint"));
  }
  if (tensor.shape != spec.shape) {
    problems.add(
        ErrorCode::corrupt,
        fmt::format("tensor {} of {} has shape {}, but config.json implies {}; fetch both of "
                    "one model",
                    spec.name, file, shape_text(tensor.shape), shape_text(spec.shape)));
  }
}

std::string file_name(const Checkpoint& checkpoint, const TensorView& tensor) {
  return checkpoint.shards()[tensor.shard].path.filename().string();
}

/// "layers.3" of "layers.3.attn.wkv.scale", "mtp.0" likewise; empty for global tensors.
std::string_view block_name(std::string_view name) {
  if (!name.starts_with("layers.") && !name.starts_with("mtp.")) return {};
  return name.substr(0, name.find('.', name.find('.') + 1));
}

/// A line for each missing tensor (the first 2000), but one for a block of which nothing is there.
void report_missing(const std::vector<TensorSpec>& table,
                    const std::vector<const TensorSpec*>& missing, std::string_view folder,
                    Problems& problems) {
  if (missing.empty()) return;
  std::unordered_map<std::string_view, std::size_t> expected;  // tensors of each block
  std::unordered_map<std::string_view, std::size_t> lacking;
  for (const TensorSpec& spec : table)
    ++expected[block_name(spec.name)];
  for (const TensorSpec* spec : missing)
    ++lacking[block_name(spec->name)];
  constexpr std::size_t kMostLines = 2000;
  std::size_t told = 0;
  std::string_view last_whole_block;
  for (const TensorSpec* spec : missing) {
    const std::string_view block = block_name(spec->name);
    if (block.empty() || lacking[block] != expected[block]) {
      if (++told > kMostLines) continue;
      problems.add(
          ErrorCode::not_found,
          fmt::format("tensor {} ({} {}) is missing from {}; fetch the checkpoint again",
                      spec->name, dtype_name(spec->dtype), shape_text(spec->shape), folder));
    } else if (block != last_whole_block) {
      problems.add(
          ErrorCode::not_found,
          fmt::format("all {} tensors of {} are missing from {}; fetch the checkpoint again",
                      expected[block], block, folder));
      last_whole_block = block;
    }
  }
  if (told > kMostLines) {
    problems.add_rest(ErrorCode::not_found, told - kMostLines,
                      fmt::format("{} missing besides, which are not listed; fetch the checkpoint "
                                  "again",
                                  counted(told - kMostLines, "tensor")));
  }
}

Result<void> check_scales(const TensorView& tensor, std::string_view origin) {
  constexpr int kNan = 255;
  const void* found = std::memchr(tensor.bytes.data(), kNan, tensor.bytes.size());
  if (tensor.bytes.empty() || found == nullptr) return {};
  const auto at =
      static_cast<std::int64_t>(static_cast<const std::byte*>(found) - tensor.bytes.data());
  const std::int64_t columns = tensor.shape.back();
  return fail(ErrorCode::corrupt,
              fmt::format("tensor {} of {} has the scale byte 255 (NaN) in row {}, column {}; "
                          "fetch the shard again",
                          in_quotes(tensor.name), origin, at / columns, at % columns));
}

/// Of 2 or 4 bytes an element. Eight bytes at a time: where all bits of an exponent are set, they
/// are 0 once they are flipped, and taking 1 from that element borrows its top bit.
template <class Element>
bool all_finite_elements(std::span<const std::byte> values, Element exponent) {
  constexpr std::uint64_t kOnes = ~std::uint64_t{0} / static_cast<Element>(~Element{0});
  const std::uint64_t exponents = kOnes * exponent;
  constexpr std::uint64_t kTops = kOnes << (8 * sizeof(Element) - 1);
  std::uint64_t bad = 0;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= values.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t eight;
    std::memcpy(&eight, values.data() + at, sizeof eight);
    const std::uint64_t clear = (eight & exponents) ^ exponents;
    bad |= (clear - kOnes) & ~clear & kTops;
  }
  for (; at + sizeof(Element) <= values.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, values.data() + at, sizeof element);
    if ((element & exponent) == exponent) bad = 1;
  }
  return bad == 0;
}

/// Whether an element of `width` bytes is NaN or infinite.
bool is_not_finite(const std::byte* element, Dtype dtype) {
  if (dtype == Dtype::f8_e4m3) return (std::to_integer<unsigned>(*element) & 0x7Fu) == 0x7Fu;
  const std::size_t width = static_cast<std::size_t>(dtype_bytes(dtype));
  // Little-endian: sign and exponent are in the last two bytes, of bf16 and of f32 alike.
  const unsigned high = std::to_integer<unsigned>(element[width - 1]) << 8 |
                        std::to_integer<unsigned>(element[width - 2]);
  return (high & 0x7F80u) == 0x7F80u;
}

Result<void> check_finite(const TensorView& tensor, std::string_view origin) {
  if (all_finite(tensor.bytes, tensor.dtype)) return {};
  const auto width = static_cast<std::size_t>(dtype_bytes(tensor.dtype));
  for (std::size_t at = 0; at < tensor.bytes.size(); at += width) {
    if (!is_not_finite(tensor.bytes.data() + at, tensor.dtype)) continue;
    const auto element = static_cast<std::int64_t>(at / width);
    const std::int64_t columns = tensor.shape.back();
    return fail(ErrorCode::corrupt,
                fmt::format("tensor {} of {} has a value that is not finite in row {}, column {}; "
                            "fetch the shard again",
                            in_quotes(tensor.name), origin, element / columns, element % columns));
  }
  return {};
}

Result<void> check_token_experts(const TensorView& tensor, const ModelConfig& config,
                                 std::string_view origin) {
  const auto columns = static_cast<std::size_t>(tensor.shape.back());
  for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(std::int64_t); ++i) {
    std::int64_t expert = 0;
    std::memcpy(&expert, tensor.bytes.data() + i * sizeof(expert), sizeof(expert));
    if (expert >= 0 && expert < config.num_experts) continue;
    return fail(ErrorCode::corrupt,
                fmt::format("tensor {} of {} has expert {} in row {}, column {}; experts are 0 to "
                            "{}; fetch the shard again",
                            in_quotes(tensor.name), origin, expert, i / columns, i % columns,
                            config.num_experts - 1));
  }
  return {};
}

}  // namespace

std::vector<std::string> check_complete(const Checkpoint& checkpoint, Problems& problems) {
  const ModelConfig& config = checkpoint.config();
  const std::vector<TensorSpec> table = tensor_table(config);
  const std::span<const TensorView> tensors = checkpoint.tensors();
  std::vector<bool> known(tensors.size());
  std::vector<const TensorSpec*> missing;
  for (const TensorSpec& spec : table) {
    const TensorView* tensor = checkpoint.find(spec.name);
    if (tensor != nullptr) {
      known[static_cast<std::size_t>(tensor - tensors.data())] = true;
      check_tensor(*tensor, spec, file_name(checkpoint, *tensor), problems);
    } else if (!checkpoint.may_be_unread(spec.name)) {
      missing.push_back(&spec);
    }
  }
  report_missing(table, missing, checkpoint.directory().string(), problems);
  std::size_t draft = 0;
  std::size_t foreign = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (known[i]) continue;
    const TensorView& tensor = tensors[i];
    if (is_model_name(tensor.name)) {
      problems.add(ErrorCode::unsupported,
                   fmt::format("tensor {} of {} is unknown; ingot would leave out a part of this "
                               "model; fetch config.json and shards of one model",
                               in_quotes(tensor.name), file_name(checkpoint, tensor)));
    } else {
      ++(tensor.name.starts_with("mtp.") ? draft : foreign);
    }
  }
  std::vector<std::string> notes;
  if (config.draft == DraftKind::dspark) {
    notes.push_back(
        fmt::format("the DSpark draft module ({} under mtp.) is ignored; the model runs without "
                    "drafts",
                    counted(draft, "tensor")));
  } else if (draft > 0) {
    notes.push_back(
        fmt::format("{} under mtp. ignored: config.json has {}", counted(draft, "tensor"),
                    counted(static_cast<std::uint64_t>(config.num_mtp_layers), "MTP block")));
  }
  if (foreign > 0) {
    notes.push_back(fmt::format("{} ignored: no part of the model", counted(foreign, "tensor")));
  }
  return notes;
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& directory) {
  Problems problems;
  Checkpoint checkpoint = Checkpoint::survey(directory, problems);
  std::vector<std::string> notes;
  if (checkpoint.has_config()) notes = check_complete(checkpoint, problems);
  if (!problems.empty()) {
    return tl::unexpected(
        problems.to_error(fmt::format("opening the checkpoint {}", directory.string())));
  }
  for (const std::string& note : notes)
    log::info("{}: {}", directory.string(), note);
  return checkpoint;
}

bool must_be_finite(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (spec.kind == TensorKind::norm || spec.kind == TensorKind::f32) return true;
  return spec.kind == TensorKind::bf16 && name != "embed.weight" && name != "head.weight";
}

bool all_finite(std::span<const std::byte> values, Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return all_finite_elements<std::uint16_t>(values, 0x7F80);
    case Dtype::f32:
      return all_finite_elements<std::uint32_t>(values, 0x7F800000);
    default:
      break;
  }
  const auto width = static_cast<std::size_t>(dtype_bytes(dtype));
  for (std::size_t at = 0; at < values.size(); at += width) {
    if (is_not_finite(values.data() + at, dtype)) return false;
  }
  return true;
}

Result<void> check_values(const TensorView& tensor, const TensorSpec& spec,
                          const ModelConfig& config, std::string_view origin, ValueChecks checks) {
  switch (spec.kind) {
    case TensorKind::block_scale:
    case TensorKind::group_scale:
      return check_scales(tensor, origin);
    case TensorKind::token_experts:
      return check_token_experts(tensor, config, origin);
    case TensorKind::bf16:
    case TensorKind::norm:
    case TensorKind::f32:
    case TensorKind::fp8:
      if (checks == ValueChecks::all || must_be_finite(spec)) return check_finite(tensor, origin);
      return {};
    case TensorKind::fp4:
      return {};  // every nibble is a number
  }
  return {};
}

void check_all_values(const Checkpoint& checkpoint, ValueChecks checks, int threads,
                      Problems& problems) {
  const std::vector<TensorSpec> table = tensor_table(checkpoint.config());
  std::vector<std::pair<std::size_t, Error>> found;  // place in table, so that order is fixed
  std::mutex found_mutex;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < table.size(); i = next++) {
      const TensorView* tensor = checkpoint.find(table[i].name);
      if (tensor == nullptr || tensor->shape != table[i].shape) continue;  // check_complete's job
      const auto checked = check_values(*tensor, table[i], checkpoint.config(),
                                        checkpoint.shards()[tensor->shard].path.string(), checks);
      if (checked) continue;
      const std::lock_guard lock(found_mutex);
      found.emplace_back(i, checked.error());
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i)
      workers.emplace_back(work);
    work();
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, error] : found)
    problems.add(error);
}

}  // namespace ingot
