#include "src/executor/step_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernel_templates/moe_weight_tiles.hpp"

namespace ingot::executor {
namespace {

// By how much the outputs of two right kernels may differ: they add in another order, and what they
// round may fall on the other side. Shares of an element and of the output's root mean square.
constexpr double kFp32Tolerance = 2e-3;
constexpr double kBf16Tolerance = 0.02;  // steps of 2^-8, and sums that FP8 tensor cores cut
// Of attention: weights of the softmax are bf16, and the values that they add nearly cancel.
constexpr double kAttentionTolerance = 0.1, kAttentionNormTolerance = 0.01;
constexpr double kFp8Tolerance = 0.15;  // steps of 2^-3
// Of the indexer's scores: a variant may round what a head adds to bf16, as the official code does,
// and what 64 heads add nearly cancels.
constexpr double kScoreTolerance = 0.03;

/// Writes down the launches of a step, layer by layer.
class Builder {
 public:
  Builder(const ModelConfig& config, const StepBucket& bucket, const StepKernels& kernels,
          const KernelLibrary& library, const DeviceWeights& weights, const DeviceState& state,
          const StepBuffers& buffers, const StepScratch& scratch, const PeerLinks* links,
          std::vector<StepLaunch>& launches)
      : config_(config),
        bucket_(bucket),
        k_(kernels),
        library_(library),
        weights_(weights),
        state_(state),
        b_(buffers),
        scratch_(scratch),
        links_(links),
        launches_(launches),
        rows_(bucket.rows),
        code_rows_((bucket.rows + 3) / 4 * 4) {}

  void build() {
    slots();
    embed();
    for (std::size_t i = 0; i < weights_.layers().size(); ++i) {
      layer_ = static_cast<int>(i);
      const Layer& layer = weights_.layers()[i];
      hyper_connection(layer.hc_attention, layer.attention_norm, i > 0);
      attention(layer, state_.layer(i), config_.layer_kind(layer_));
      hyper_connection(layer.hc_ffn, layer.ffn_norm, true, b_.z_codes, b_.z_scale);
      experts(layer.experts);
    }
    layer_ = -1;
    if (bucket_.logit_rows > 0) head();
  }

 private:
  template <class Args>
  void add(std::string_view name, KernelLibrary::Slot slot, const Args& args,
           std::vector<StepOutput> outputs) {
    static_assert(std::is_trivially_copyable_v<Args>);
    StepLaunch launch{.name = name,
                      .kernel = &library_.at(slot),
                      .args = std::vector<std::byte>(sizeof(Args)),
                      .layer = layer_,
                      .outputs = std::move(outputs),
                      .beside = beside_,
                      .joins = !beside_ && std::exchange(joins_, false)};
    std::memcpy(launch.args.data(), &args, sizeof(Args));
    launches_.push_back(std::move(launch));
  }

  template <class T>
  static constexpr Dtype dtype_of() {
    if constexpr (std::is_same_v<T, float>) return Dtype::f32;
    if constexpr (std::is_same_v<T, kernels::bf16>) return Dtype::bf16;
    if constexpr (sizeof(T) == 4) return Dtype::u32;
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4);
    return Dtype::u8;
  }
  /// An array that the launch writes without having read it.
  template <class T>
  static StepOutput written(std::string_view name, T* at, std::int64_t count,
                            double tolerance = 0) {
    return {.name = name,
            .at = at,
            .bytes = static_cast<std::uint64_t>(count) * sizeof(T),
            .dtype = dtype_of<T>(),
            .tolerance = tolerance};
  }
  /// An array that it changes.
  template <class T>
  static StepOutput updated(std::string_view name, T* at, std::int64_t count,
                            double tolerance = 0) {
    StepOutput output = written(name, at, count, tolerance);
    output.updated = true;
    return output;
  }
  StepOutput quantized(std::string_view name, kernels::fp8_e4m3* codes, float* scale,
                       int cols) const {
    StepOutput output = written(name, codes, std::int64_t{code_rows_} * cols, kFp8Tolerance);
    output.form = StepOutput::Form::fp8_tiles;
    output.scales = scale;
    return output;
  }
  /// The same by rows, as moe_decode reads them.
  StepOutput quantized_rows(std::string_view name, kernels::fp8_e4m3* codes, float* scale,
                            int cols) const {
    StepOutput output = written(name, codes, std::int64_t{rows_} * cols, kFp8Tolerance);
    output.form = StepOutput::Form::fp8_rows;
    output.scales = scale;
    output.columns = cols;
    output.scale_stride = kernels::act_quant_scale_stride(cols);
    return output;
  }
  static StepOutput entries(StepOutput::Form form, kernels::u8* pool, int first = 0) {
    return {.name = "pool",
            .at = pool,
            .tolerance = kFp8Tolerance,
            .updated = true,
            .form = form,
            .first_entry = first};
  }

  const int* csa_table() const { return state_.csa_table(); }

  void slots() {
    std::vector<StepOutput> outputs{
        written("window_indices", b_.window_indices, std::int64_t{rows_} * config_.sliding_window),
        written("window_counts", b_.window_counts, rows_),
        written("append_slots", b_.append_slots, rows_),
        written("hca_indices", b_.hca_indices, std::int64_t{rows_} * hca_slots()),
        written("hca_counts", b_.hca_counts, rows_),
        written("csa_counts", b_.csa_counts, rows_)};
    if (bucket_.wide()) outputs.push_back(written("keep_slots", b_.keep_slots, rows_));
    add("attention slots", k_.slots,
        kernels::AttentionSlotsArgs{.positions = b_.inputs->positions(rows_),
                                    .sequences = b_.inputs->sequences(rows_),
                                    .page_table = state_.hca_table(),
                                    .window_indices = b_.window_indices,
                                    .window_counts = b_.window_counts,
                                    .append_slots = b_.append_slots,
                                    .keep_slots = b_.keep_slots,
                                    .hca_indices = b_.hca_indices,
                                    .hca_counts = b_.hca_counts,
                                    .csa_counts = b_.csa_counts,
                                    .rows = rows_,
                                    .hca_slots = hca_slots(),
                                    .page_stride = state_.hca_stride(),
                                    .pass_slots = state_.pass_slots()},
        std::move(outputs));
  }
  int hca_slots() const { return hca_list_slots(config_, bucket_); }

  void embed() {
    add("embedding", k_.embedding,
        kernels::EmbeddingArgs{.ids = b_.inputs->ids(rows_),
                               .table = weights_.embedding().values,
                               .out = links_ == nullptr ? b_.streams[0] : b_.f,
                               .first_row = weights_.first_token(),
                               .rows = weights_.embedding().rows,
                               .tokens = rows_},
        {written(
            "out", links_ == nullptr ? b_.streams[0] : b_.f,
            links_ == nullptr ? stream_values(rows_) : std::int64_t{rows_} * config_.hidden_size)});
    if (links_ != nullptr)
      sum_ranks("embedding sum", k_.embedding_sum, nullptr, b_.f, b_.streams[0], config_.hc_mult);
  }

  /// Adds over all ranks.
  /// @param copies  times that the sum is written
  void sum_ranks(std::string_view name, KernelLibrary::Slot slot, const float* sums,
                 const kernels::bf16* values, kernels::bf16* out, int copies = 1) {
    if (k_.sums_at_once) {
      kernels::AllReduceWideArgs args = links_->wide_reduce_args();
      args.sums = sums;
      args.values = values;
      for (int rank = 0; rank < links_->ranks(); ++rank)
        args.out[rank] = links_->of_rank(rank, out);
      args.tokens = rows_;
      args.hidden = config_.hidden_size;
      add(name, slot, args, {});
      return;
    }
    const int slice = std::min(rows_, kMostSliceRows);
    for (int row = 0; row < rows_; row += slice) {
      const std::int64_t first = std::int64_t{row} * config_.hidden_size;
      sum_slice(name, slot, sums == nullptr ? nullptr : sums + first, values + first,
                out + first * copies, slice);
    }
  }
  void sum_slice(std::string_view name, KernelLibrary::Slot slot, const float* sums,
                 const kernels::bf16* values, kernels::bf16* out, int rows) {
    kernels::AllReduceArgs args = links_->reduce_args();
    args.sums = sums;
    args.values = values;
    args.out = out;
    args.tokens = rows;
    args.hidden = config_.hidden_size;
    if (!links_->has_nccl()) {
      add(name, slot, args, {});
      return;
    }
    const std::int64_t words = kernels::all_reduce_words(
        static_cast<std::int64_t>(rows) * config_.hidden_size, sums != nullptr);
    args.slot_words = (words + 1) / 2 * 2;
    args.parts = kernels::EXCHANGE_SEND;
    add(name, slot, args, {});
    kernels::u64* inbox = args.inbox[args.rank];
    gather_words(inbox + args.rank * args.slot_words, inbox,
                 8 * static_cast<std::size_t>(args.slot_words));
    args.parts = kernels::EXCHANGE_RECEIVE;
    add(name, slot, args, {});
  }
  void gather_words(const void* from, void* to, std::size_t bytes) {
    const GatherWords words{from, to, bytes};
    StepLaunch launch{.name = "nccl",
                      .kernel = nullptr,
                      .args = std::vector<std::byte>(sizeof(words)),
                      .layer = layer_};
    std::memcpy(launch.args.data(), &words, sizeof(words));
    launches_.push_back(std::move(launch));
  }

  /// Streams (and the output of the sublayer before) to the next sublayer's input: b.x, quantised
  /// in b.x_codes.
  /// @param codes, scale  where the quantised input goes by rows, too, or null
  void hyper_connection(const HyperConnection& hc, const kernels::bf16* norm, bool after,
                        kernels::fp8_e4m3* codes = nullptr, float* scale = nullptr) {
    add(codes == nullptr ? "attention hyper-connection" : "expert hyper-connection",
        after ? k_.hc_between : k_.hc_first,
        kernels::HcPreArgs{.streams = b_.streams[streams_],
                           .sublayer = b_.f,
                           .post_in = b_.post,
                           .comb_in = b_.comb,
                           .streams_out = b_.streams[1 - streams_],
                           .fn = hc.fn,
                           .base = hc.base,
                           .scale = hc.scale,
                           .norm = norm,
                           .post = b_.post,
                           .comb = b_.comb,
                           .out = b_.x,
                           .codes = b_.x_codes,
                           .code_scale = b_.x_scale,
                           .row_codes = codes,
                           .row_scale = scale,
                           .workspace = scratch_.ones,
                           .tokens = rows_,
                           .code_rows = code_rows_,
                           .sinkhorn = config_.hc_sinkhorn_iters,
                           .norm_epsilon = config_.rms_norm_eps,
                           .hc_epsilon = config_.hc_eps},
        hyper_connection_outputs(after, codes, scale));
    if (after) streams_ = 1 - streams_;
  }

  std::int64_t stream_values(int rows) const {
    return std::int64_t{rows} * config_.hc_mult * config_.hidden_size;
  }
  std::vector<StepOutput> hyper_connection_outputs(bool after, kernels::fp8_e4m3* codes,
                                                   float* scale) const {
    const std::int64_t mult = config_.hc_mult;
    std::vector<StepOutput> outputs{
        updated("post", b_.post, rows_ * mult, kFp32Tolerance),
        updated("comb", b_.comb, rows_ * mult * mult, kFp32Tolerance),
        written("out", b_.x, std::int64_t{rows_} * config_.hidden_size, kBf16Tolerance),
        quantized("codes", b_.x_codes, b_.x_scale, config_.hidden_size)};
    if (codes != nullptr)
      outputs.push_back(quantized_rows("row_codes", codes, scale, config_.hidden_size));
    if (after) {
      outputs.push_back(
          written("streams_out", b_.streams[1 - streams_], stream_values(rows_), kBf16Tolerance));
    }
    return outputs;
  }

  static kernels::Fp8LinearSegment segment(const Fp8Matrix& matrix, kernels::bf16* out) {
    return {.weight = matrix.tiles,
            .scale = matrix.scales,
            .out = out,
            .rows = matrix.rows,
            .out_stride = matrix.rows};
  }
  kernels::Fp8LinearArgs linear(const kernels::bf16* x, const kernels::fp8_e4m3* codes,
                                const float* scale) const {
    return {.segments = {},
            .x = x,
            .xq = codes,
            .x_scale = scale,
            .workspace = scratch_.ones,
            .tokens = rows_,
            .x_rows = code_rows_};
  }
  void add_linear(std::string_view name, KernelLibrary::Slot slot,
                  const kernels::Fp8LinearArgs& args) {
    std::vector<StepOutput> outputs;
    for (const auto& segment : args.segments) {
      if (segment.rows == 0) continue;
      outputs.push_back(
          written("out", segment.out, std::int64_t{rows_} * segment.out_stride, kBf16Tolerance));
    }
    add(name, slot, args, std::move(outputs));
  }
  void quantize(std::string_view name, KernelLibrary::Slot slot, const kernels::bf16* x, int cols,
                kernels::fp8_e4m3* codes, float* scale) {
    add(name, slot,
        kernels::ActQuantArgs{.x = x,
                              .codes = codes,
                              .scale = scale,
                              .tokens = rows_,
                              .cols = cols,
                              .x_stride = cols,
                              .rows = code_rows_},
        {written("codes", codes, std::int64_t{code_rows_} * cols),
         written("scale", scale, std::int64_t{code_rows_} * cols / 128)});
  }
  bool quantizes_inline() const { return deciding_rows(bucket_) <= kMostBf16InputTokens; }

  void attention(const Layer& layer, const LayerState& state, LayerKind kind) {
    const float* frequencies =
        kind == LayerKind::swa ? weights_.plain_frequencies() : weights_.compress_frequencies();
    const int q_dims = layer.wq_b.rows;
    // What the compressors add needs nothing of the queries, and these nothing of it.
    beside([&] {
      if (kind == LayerKind::csa) compress_csa(layer, state, frequencies);
      if (kind == LayerKind::hca) compress_hca(layer, state, frequencies);
    });
    auto first = linear(nullptr, b_.x_codes, b_.x_scale);
    first.segments[0] = segment(layer.wq_a, b_.q_latent);
    first.segments[1] = segment(layer.wkv, b_.kv);
    add_linear("wq_a, wkv", k_.wq_a_wkv, first);
    kernels::RopeKvAppendArgs append{.kv = b_.kv,
                                     .norm_weight = layer.kv_norm,
                                     .frequencies = frequencies,
                                     .positions = b_.inputs->positions(rows_),
                                     .slots = b_.append_slots,
                                     .pool = state.window,
                                     .latent = b_.q_latent,
                                     .latent_weight = layer.q_norm,
                                     .latent_out = b_.q_latent_normed,
                                     .tokens = rows_,
                                     .kv_stride = layer.wkv.rows,
                                     .epsilon = config_.rms_norm_eps};
    add("kv append, q norm", k_.kv_append, append,
        {bucket_.wide() ? entries(StepOutput::Form::pass_entries, state.window, state_.pass_slots())
                        : entries(StepOutput::Form::window_entries, state.window),
         written("latent_out", b_.q_latent_normed, std::int64_t{rows_} * config_.q_lora_rank,
                 kBf16Tolerance)});
    if (!quantizes_inline()) {
      quantize("quantise q latent", k_.q_quant, b_.q_latent_normed, config_.q_lora_rank, b_.q_codes,
               b_.q_scale);
    }
    auto second = linear(b_.q_latent_normed, b_.q_codes, b_.q_scale);
    second.segments[0] = segment(layer.wq_b, b_.q);
    if (kind == LayerKind::csa) second.segments[1] = segment(layer.indexer.wq_b, b_.index_q);
    add_linear(kind == LayerKind::csa ? "wq_b, indexer wq_b" : "wq_b",
               kind == LayerKind::csa ? k_.wq_b_indexer : k_.wq_b, second);
    const auto turn_queries = [&] {
      add("q norm, rope", k_.q_norm_rope,
          kernels::QNormRopeArgs{.q = b_.q,
                                 .frequencies = frequencies,
                                 .positions = b_.inputs->positions(rows_),
                                 .heads = q_dims / config_.head_dim,
                                 .tokens = rows_,
                                 .q_stride = q_dims,
                                 .epsilon = config_.rms_norm_eps},
          {updated("q", b_.q, std::int64_t{rows_} * q_dims, kBf16Tolerance)});
    };
    if (kind == LayerKind::csa) {
      index_queries(layer.indexer, frequencies);
      beside(turn_queries);
      select_all(state);
    } else {
      turn_queries();
    }

    kernels::SparseMlaDecodeArgs core{.q = b_.q,
                                      .window_pool = state.window,
                                      .selected_pool = state.entries,
                                      .window_indices = b_.window_indices,
                                      .selected_indices = nullptr,
                                      .window_counts = b_.window_counts,
                                      .selected_counts = nullptr,
                                      .sink = layer.sink,
                                      .positions = b_.inputs->positions(rows_),
                                      .frequencies = frequencies,
                                      .out = b_.o,
                                      .exchange_values = static_cast<float*>(scratch_.ones),
                                      .exchange_sums = static_cast<float*>(scratch_.ones_more),
                                      .rows = rows_,
                                      .heads = q_dims / config_.head_dim,
                                      .window_slots = config_.sliding_window,
                                      .selected_slots = 0};
    join();
    KernelLibrary::Slot slot = k_.swa_attention;
    if (kind == LayerKind::csa) {
      core.selected_indices = b_.selected;
      core.selected_counts = b_.selected_counts;
      core.selected_slots = config_.index_topk;
      slot = k_.csa_attention;
    } else if (kind == LayerKind::hca) {
      core.selected_indices = b_.hca_indices;
      core.selected_counts = b_.hca_counts;
      core.selected_slots = hca_slots();
      slot = k_.hca_attention;
    }
    StepOutput attended = written("out", b_.o, std::int64_t{rows_} * q_dims, kAttentionTolerance);
    attended.norm_tolerance = kAttentionNormTolerance;
    add("attention", slot, core, {attended});
    if (bucket_.wide()) {
      // Every row has read the rings: now they may hold the newest tokens.
      append.slots = b_.keep_slots;
      append.latent = append.latent_weight = nullptr;
      append.latent_out = nullptr;
      add("kv keep", k_.kv_keep, append, {entries(StepOutput::Form::window_entries, state.window)});
    }

    add("wo_a", k_.wo_a,
        kernels::GroupedLinearArgs{.x = b_.o,
                                   .weight = layer.wo_a.tiles,
                                   .scale = layer.wo_a.scales,
                                   .out = b_.o_latent,
                                   .workspace = scratch_.ones,
                                   .tokens = rows_,
                                   .rows = layer.wo_a.rows,
                                   .group_rows = config_.o_lora_rank,
                                   .x_stride = q_dims,
                                   .out_stride = layer.wo_a.rows},
        {written("out", b_.o_latent, std::int64_t{rows_} * layer.wo_a.rows, kBf16Tolerance)});
    if (!quantizes_inline()) {
      quantize("quantise o latent", k_.o_quant, b_.o_latent, layer.wo_b.cols, b_.o_codes,
               b_.o_scale);
    }
    auto last = linear(b_.o_latent, b_.o_codes, b_.o_scale);
    last.segments[0] = segment(layer.wo_b, b_.f);
    add_linear("wo_b", k_.wo_b, last);
    if (links_ != nullptr) sum_ranks("attention sum", k_.attention_sum, nullptr, b_.f, b_.f);
  }

  static kernels::Bf16LinearSegment segment(const Bf16Matrix& matrix, void* out, bool bf16) {
    return {.weight = matrix.values,
            .out = out,
            .rows = matrix.rows,
            .out_stride = matrix.rows,
            .out_bf16 = bf16 ? 1 : 0};
  }
  kernels::Bf16LinearArgs bf16_linear() const {
    return {.segments = {},
            .x = b_.x,
            .workspace = beside_ ? scratch_.ones_beside : scratch_.ones,
            .tokens = rows_,
            .x_stride = config_.hidden_size};
  }

  void add_linear(std::string_view name, KernelLibrary::Slot slot,
                  const kernels::Bf16LinearArgs& args) {
    std::vector<StepOutput> outputs;
    for (const auto& segment : args.segments) {
      if (segment.rows == 0) continue;
      const std::int64_t count = std::int64_t{args.tokens} * segment.out_stride;
      outputs.push_back(
          segment.out_bf16 != 0
              ? written("out", static_cast<kernels::bf16*>(segment.out), count, kBf16Tolerance)
              : written("out", static_cast<float*>(segment.out), count, kFp32Tolerance));
    }
    add(name, slot, args, std::move(outputs));
  }

  void add_compressor(std::string_view name, KernelLibrary::Slot slot,
                      const kernels::CompressKvArgs& args, StepOutput::Form form, int ratio) {
    const bool index_keys = form == StepOutput::Form::index_keys;
    const std::int64_t state = std::int64_t{kCompressorRows} *
                               kernels::compress_kv_state_floats(ratio, index_keys) *
                               state_.sizes().slots;
    add(name, slot, args,
        {entries(form, args.pool), updated("state", args.state, state, kFp32Tolerance)});
  }
  kernels::CompressKvArgs compressor(const Compressor& weights, const float* k, const float* s,
                                     const float* frequencies, const int* table, int stride,
                                     kernels::u8* pool, float* state) const {
    return {.k = k,
            .s = s,
            .ape = weights.ape,
            .norm_weight = weights.norm,
            .frequencies = frequencies,
            .row_starts = b_.inputs->row_starts,
            .positions = b_.inputs->positions(rows_),
            .slots = b_.inputs->slots,
            .page_table = table,
            .pool = pool,
            .state = state,
            .row_stride = weights.wkv.rows,
            .page_stride = stride,
            .epsilon = config_.rms_norm_eps};
  }

  /// Launches that run beside those that follow, until one needs what they write: the next that
  /// follows an earlier group, and attention. A pass of many rows fills the card anyway.
  template <class Launches>
  void beside(const Launches& launches) {
    const std::size_t before = launches_.size();
    beside_ = runs_beside(bucket_);
    launches();
    beside_ = false;
    waiting_ = waiting_ || launches_.size() > before;
  }
  /// The next launch needs what is beside.
  void join() { joins_ = std::exchange(waiting_, false) && runs_beside(bucket_); }

  /// CSA: appends to both pools.
  void compress_csa(const Layer& layer, const LayerState& state, const float* frequencies) {
    const Indexer& indexer = layer.indexer;
    auto all = bf16_linear();
    all.segments[0] = segment(indexer.weights_proj, b_.index_projected, true);
    all.segments[1] = segment(layer.compressor.wkv, b_.k, false);
    all.segments[2] = segment(layer.compressor.wgate, b_.s, false);
    all.segments[3] = segment(indexer.compressor.wkv, b_.index_k, false);
    all.segments[4] = segment(indexer.compressor.wgate, b_.index_s, false);
    add_linear("compressors, indexer weights", k_.csa_linear, all);
    add_compressor("compress kv", k_.csa_compress,
                   compressor(layer.compressor, b_.k, b_.s, frequencies, csa_table(),
                              state_.csa_stride(), state.entries, state.compressor),
                   StepOutput::Form::csa_entries, 4);
    add_compressor("compress index keys", k_.index_compress,
                   compressor(indexer.compressor, b_.index_k, b_.index_s, frequencies, csa_table(),
                              state_.csa_stride(), state.index_keys, state.index_compressor),
                   StepOutput::Form::index_keys, 4);
  }
  void index_queries(const Indexer& indexer, const float* frequencies) {
    join();  // the heads' weights
    // Both factors in one, rounded to fp32 once.
    const double scale = 1.0 / std::sqrt(static_cast<double>(config_.index_head_dim)) /
                         std::sqrt(static_cast<double>(config_.index_heads));
    add("indexer queries", k_.index_queries,
        kernels::IndexerQueriesArgs{.q = b_.index_q,
                                    .projected = b_.index_projected,
                                    .frequencies = frequencies,
                                    .positions = b_.inputs->positions(rows_),
                                    .codes = b_.index_codes,
                                    .scales = b_.index_scales,
                                    .weights = b_.index_weights,
                                    .q_stride = indexer.wq_b.rows,
                                    .weight_scale = static_cast<float>(scale)},
        {written("codes", b_.index_codes,
                 std::int64_t{rows_} * config_.index_heads * kernels::INDEX_CODE_BYTES),
         written("scales", b_.index_scales,
                 std::int64_t{rows_} * config_.index_heads * kernels::INDEX_SCALE_BYTES),
         written("weights", b_.index_weights, std::int64_t{rows_} * config_.index_heads,
                 kBf16Tolerance)});
  }
  /// Chooses the keys of each row, as many rows at a time as the scores have room for.
  void select_all(const LayerState& state) {
    const int slice = index_slice_rows(bucket_);
    for (int row = 0; row < rows_; row += slice)
      select(state, row, slice);
  }
  void select(const LayerState& state, std::int64_t first, int rows) {
    const std::int64_t stride = (bucket_.context / 4 + 3) / 4 * 4;
    const std::int64_t heads = config_.index_heads, top = config_.index_topk;
    const int* const sequences = b_.inputs->sequences(rows_) + first;
    add("indexer scores", k_.index_scores,
        kernels::IndexerScoresArgs{
            .q = b_.index_codes + first * heads * kernels::INDEX_CODE_BYTES,
            .q_scales = b_.index_scales + first * heads * kernels::INDEX_SCALE_BYTES,
            .weights = b_.index_weights + first * heads,
            .pool = state.index_keys,
            .page_table = csa_table(),
            .sequences = sequences,
            .counts = b_.csa_counts + first,
            .scores = b_.index_scores,
            .score_stride = stride,
            .page_stride = state_.csa_stride(),
            .rows = rows,
            .all_taken = config_.index_topk},
        {written("scores", b_.index_scores, rows * stride, kScoreTolerance)});
    add("indexer top-k", k_.index_topk,
        kernels::IndexerTopkArgs{.scores = b_.index_scores,
                                 .counts = b_.csa_counts + first,
                                 .sequences = sequences,
                                 .page_table = csa_table(),
                                 .indices = b_.selected + first * top,
                                 .selected_counts = b_.selected_counts + first,
                                 .nan_counts = b_.nan_counts + first,
                                 .candidate_keys = static_cast<kernels::u32*>(scratch_.any),
                                 .candidate_indices = static_cast<int*>(scratch_.any_more),
                                 .arrived = b_.arrived + first,
                                 .score_stride = stride,
                                 .page_stride = state_.csa_stride()},
        {written("indices", b_.selected + first * top, rows * top),
         written("selected_counts", b_.selected_counts + first, rows),
         updated("nan_counts", b_.nan_counts + first, rows),
         updated("arrived", b_.arrived + first, rows)});
  }

  void compress_hca(const Layer& layer, const LayerState& state, const float* frequencies) {
    auto both = bf16_linear();
    both.segments[0] = segment(layer.compressor.wkv, b_.k, false);
    both.segments[1] = segment(layer.compressor.wgate, b_.s, false);
    add_linear("compressor", k_.hca_linear, both);
    add_compressor("compress kv", k_.hca_compress,
                   compressor(layer.compressor, b_.k, b_.s, frequencies, state_.hca_table(),
                              state_.hca_stride(), state.entries, state.compressor),
                   StepOutput::Form::hca_entries, 128);
  }

  void shared_expert(const Experts& weights, float limit) {
    auto up = linear(nullptr, b_.x_codes, b_.x_scale);
    up.segments[0] = segment(weights.shared_gate, b_.shared_gate);
    up.segments[1] = segment(weights.shared_up, b_.shared_up);
    add_linear("shared w1, w3", k_.shared_up, up);
    const int inter = weights.shared_down.cols;
    add("shared activation", k_.shared_activation,
        kernels::SwigluQuantArgs{.gate = b_.shared_gate,
                                 .up = b_.shared_up,
                                 .codes = b_.shared_codes,
                                 .scale = b_.shared_scale,
                                 .limit = limit,
                                 .tokens = rows_,
                                 .inter = inter,
                                 .stride = inter,
                                 .rows = code_rows_},
        {quantized("codes", b_.shared_codes, b_.shared_scale, inter)});
    auto down = linear(nullptr, b_.shared_codes, b_.shared_scale);
    down.segments[0] = segment(weights.shared_down, b_.shared);
    add_linear("shared w2", k_.shared_down, down);
  }

  kernels::RouterTopkArgs router_args(const Experts& weights) const {
    return {.z = b_.x,
            .gate = weights.gate.values,
            .logits = b_.gate_logits,
            .bias = weights.bias,
            .table = weights.token_experts,
            .ids = b_.inputs->ids(rows_),
            .experts = b_.experts,
            .weights = b_.expert_weights,
            .workspace = scratch_.ones,
            .vocabulary = config_.vocab_size,
            .tokens = rows_,
            .route_scale = config_.routed_scaling_factor};
  }
  std::vector<StepOutput> router_outputs() const {
    const std::int64_t chosen = std::int64_t{rows_} * config_.experts_per_token;
    return {written("experts", b_.experts, chosen),
            written("weights", b_.expert_weights, chosen, kFp32Tolerance)};
  }
  void router(const Experts& weights) {
    const bool gate = deciding_rows(bucket_) <= kMostGateTokens;
    if (!gate) {
      auto logits = bf16_linear();
      logits.segments[0] = segment(weights.gate, b_.gate_logits, false);
      add_linear("gate", k_.gate, logits);
    }
    add("router", weights.token_experts != nullptr ? k_.hash_router : k_.router,
        router_args(weights), router_outputs());
  }

  void shared_expert_and_router(const Experts& weights, float limit) {
    const auto weight = [](const Fp8Matrix& of) {
      return kernels::SharedExpertFewWeight{.weight = of.tiles, .scale = of.scales};
    };
    std::vector<StepOutput> outputs = router_outputs();
    outputs.push_back(
        written("out", b_.shared, std::int64_t{rows_} * config_.hidden_size, kBf16Tolerance));
    add("shared expert, router",
        weights.token_experts != nullptr ? k_.hash_shared_router : k_.shared_router,
        kernels::SharedExpertFewArgs{.router = router_args(weights),
                                     .gate = weight(weights.shared_gate),
                                     .up = weight(weights.shared_up),
                                     .down = weight(weights.shared_down),
                                     .xq = b_.x_codes,
                                     .x_scale = b_.x_scale,
                                     .out = b_.shared,
                                     .x_rows = code_rows_,
                                     .limit = limit},
        std::move(outputs));
  }

  void experts(const Experts& weights) {
    const float limit =
        config_.swiglu_limit > 0 ? config_.swiglu_limit : std::numeric_limits<float>::infinity();
    if (k_.shared_with_router) {
      shared_expert_and_router(weights, limit);
    } else {
      // The shared expert goes first: its weights are on their way while the hyper-connection runs,
      // and behind the routed experts they could not be, which fill the shared memory.
      shared_expert(weights, limit);
      router(weights);
    }
    if (k_.grouped) {
      grouped_experts(weights, limit);
    } else {
      const int slice = std::min(rows_, kMostSliceRows);
      for (int row = 0; row < rows_; row += slice)
        routed_experts(weights, limit, row, slice);
    }
    if (links_ != nullptr) {
      sum_ranks("expert sum", k_.rank_sum, b_.routed, b_.shared, b_.f);
      return;
    }
    add("expert sum", k_.expert_sum,
        kernels::ExpertSumArgs{.routed = b_.routed,
                               .shared = b_.shared,
                               .out = b_.f,
                               .tokens = rows_,
                               .hidden = config_.hidden_size},
        {written("out", b_.f, std::int64_t{rows_} * config_.hidden_size, kBf16Tolerance)});
  }

  /// Those of all rows, expert by expert.
  void grouped_experts(const Experts& weights, float limit) {
    const kernels::MoePrefillWorkspace w =
        grouped_workspace(config_, config_.moe_intermediate_size / weights.shared_down.cols, rows_);
    const auto at = [&]<class T>(T* /*type*/, long long offset) {
      return reinterpret_cast<T*>(b_.grouped + offset);
    };
    constexpr int* kInts = nullptr;
    constexpr float* kFloats = nullptr;
    int* const first = at(kInts, w.first);
    int* const count = at(kInts, w.count);
    int* const row_of = at(kInts, w.row_of);
    float* const row_weight = at(kFloats, w.row_weight);
    kernels::u8* const inputs = b_.grouped + w.rows;
    float* const input_scale = at(kFloats, w.row_scale);
    kernels::u8* const hidden = b_.grouped + w.h;
    float* const hidden_scale = at(kFloats, w.h_scale);
    const std::int64_t pairs = std::int64_t{rows_} * config_.experts_per_token;
    add("expert order", k_.expert_order,
        kernels::ExpertOrderArgs{.experts = b_.experts,
                                 .weights = b_.expert_weights,
                                 .first = first,
                                 .count = count,
                                 .row_of = row_of,
                                 .row_weight = row_weight,
                                 .tokens = rows_},
        {written("first", first, config_.num_experts), written("count", count, config_.num_experts),
         written("row_of", row_of, pairs), written("row_weight", row_weight, w.row_pitch)});
    add("expert gather", k_.expert_gather,
        kernels::ExpertGatherArgs{
            .x = b_.z_codes,
            .x_scale = b_.z_scale,
            .row_of = row_of,
            .rows = inputs,
            .row_scale = input_scale,
            .scale_stride = kernels::act_quant_scale_stride(config_.hidden_size),
            .row_pitch = w.row_pitch,
            .tokens = rows_},
        {});
    kernels::MoePrefillArgs product{.weights = weights.gate_up,
                                    .x = inputs,
                                    .x_scale = input_scale,
                                    .first = first,
                                    .count = count,
                                    .row_weight = row_weight,
                                    .h = hidden,
                                    .h_scale = hidden_scale,
                                    .y = b_.grouped + w.y,
                                    .limit = limit,
                                    .row_pitch = w.row_pitch};
    StepOutput activations = written(
        "h", reinterpret_cast<kernels::fp8_e4m3*>(hidden),
        std::int64_t{kernels::moe_width(weights.shared_down.cols)} * w.row_pitch, kFp8Tolerance);
    activations.form = StepOutput::Form::fp8_tiles;
    activations.scales = hidden_scale;
    add("experts gate, up", k_.experts_up, product, {activations});
    product.weights = weights.down;
    product.x = hidden;
    product.x_scale = hidden_scale;
    const std::int64_t sums = std::int64_t{w.row_pitch} * config_.hidden_size;
    add("experts down", k_.experts_down, product,
        {links_ == nullptr ? written("y", reinterpret_cast<kernels::bf16*>(b_.grouped + w.y), sums,
                                     kBf16Tolerance)
                           : written("y", at(kFloats, w.y), sums, kFp32Tolerance)});
    add("expert join", k_.expert_join,
        kernels::ExpertJoinArgs{
            .y = b_.grouped + w.y, .row_of = row_of, .out = b_.routed, .tokens = rows_},
        {written("out", b_.routed, std::int64_t{rows_} * config_.hidden_size, kBf16Tolerance)});
  }
  void routed_experts(const Experts& weights, float limit, std::int64_t first, int rows) {
    const std::int64_t hidden = config_.hidden_size, top = config_.experts_per_token;
    float* const out = b_.routed + first * hidden;
    add("experts", k_.experts,
        kernels::MoeDecodeArgs{
            .x = b_.z_codes + first * hidden,
            .x_scale = b_.z_scale + first * kernels::act_quant_scale_stride(config_.hidden_size),
            .experts = b_.experts + first * top,
            .weights = b_.expert_weights + first * top,
            .gate_up = weights.gate_up,
            .down = weights.down,
            .sums = static_cast<float*>(scratch_.any),
            .activations = static_cast<kernels::u8*>(scratch_.any_more),
            .out = out,
            .counters = scratch_.expert_counters,
            .limit = limit,
            .tokens = rows},
        {written("out", out, rows * hidden, kBf16Tolerance)});
  }

  void head() {
    add("last streams", k_.hc_last,
        kernels::HcPostArgs{.streams = b_.streams[streams_],
                            .sublayer = b_.f,
                            .post = b_.post,
                            .comb = b_.comb,
                            .out = b_.streams[1 - streams_],
                            .tokens = rows_},
        {written("out", b_.streams[1 - streams_], stream_values(rows_), kBf16Tolerance)});
    const kernels::bf16* picked = b_.streams[1 - streams_];
    if (bucket_.logit_rows < rows_) {
      add("pick rows", k_.pick_rows,
          kernels::EmbeddingArgs{.ids = b_.inputs->picks,
                                 .table = picked,
                                 .out = b_.picked,
                                 .first_row = 0,
                                 .rows = rows_,
                                 .tokens = bucket_.logit_rows},
          {written("out", b_.picked, stream_values(bucket_.logit_rows))});
      picked = b_.picked;
    }
    const HyperConnection& hc = weights_.hc_head();
    add("head hyper-connection", k_.hc_head,
        kernels::HcPreArgs{.streams = picked,
                           .sublayer = nullptr,
                           .post_in = nullptr,
                           .comb_in = nullptr,
                           .streams_out = nullptr,
                           .fn = hc.fn,
                           .base = hc.base,
                           .scale = hc.scale,
                           .norm = weights_.norm(),
                           .post = nullptr,
                           .comb = nullptr,
                           .out = b_.head_x,
                           .codes = nullptr,
                           .code_scale = nullptr,
                           .row_codes = nullptr,
                           .row_scale = nullptr,
                           .workspace = scratch_.ones,
                           .tokens = bucket_.logit_rows,
                           .code_rows = 4,
                           .sinkhorn = 0,
                           .norm_epsilon = config_.rms_norm_eps,
                           .hc_epsilon = config_.hc_eps},
        {written("out", b_.head_x, std::int64_t{bucket_.logit_rows} * config_.hidden_size,
                 kBf16Tolerance)});
    kernels::Bf16LinearArgs logits{.segments = {},
                                   .x = b_.head_x,
                                   .workspace = scratch_.ones,
                                   .tokens = bucket_.logit_rows,
                                   .x_stride = config_.hidden_size};
    logits.segments[0] = segment(weights_.head(), b_.logits_share, false);
    add_linear("head", k_.head, logits);
    if (links_ != nullptr) gather_logits();
    // Rank 0 has the logits of all.
    if (bucket_.sampled && (links_ == nullptr || links_->gather_args().rank == 0)) sample();
  }

  void gather_logits() {
    kernels::AllGatherArgs gather = links_->gather_args();
    gather.from = b_.logits_share;
    gather.rows = bucket_.logit_rows;
    gather.share = weights_.head().rows;
    if (!links_->has_nccl()) {
      add("gather logits", k_.logits, gather, {});
      return;
    }
    // Side by side by rank first; rank 0 puts them into columns.
    const int own = gather.rank, ranks = config_.vocab_size / gather.share;
    const std::int64_t count = static_cast<std::int64_t>(gather.rows) * gather.share;
    gather_words(b_.logits_share, b_.logits_by_rank, 4 * static_cast<std::size_t>(count));
    gather.parts = kernels::EXCHANGE_SEND;
    for (gather.rank = 0; own == 0 && gather.rank < ranks; ++gather.rank) {
      gather.from = b_.logits_by_rank + gather.rank * count;
      add("gather logits", k_.logits, gather, {});
    }
  }

  void sample() {
    add("sample", k_.sample,
        kernels::SampleTokensArgs{.logits = b_.logits,
                                  .rows = b_.inputs->sample_rows(bucket_.logit_rows),
                                  .bias_ids = b_.bias_ids,
                                  .bias_values = b_.bias_values,
                                  .counts = b_.sample_counts,
                                  .adjusted = b_.sample_adjusted,
                                  .results = b_.samples,
                                  .counters = b_.sample_counters,
                                  .exchange = static_cast<kernels::u64*>(scratch_.any),
                                  .vocabulary = config_.vocab_size,
                                  .stride = config_.vocab_size},
        {written("results", reinterpret_cast<kernels::u32*>(b_.samples),
                 bucket_.logit_rows * std::int64_t{sizeof(kernels::SampleResult)} / 4),
         // Of the first row, which is the one with penalties in the edge cases.
         updated("counts", reinterpret_cast<kernels::u8*>(b_.sample_counts),
                 2 * std::int64_t{config_.vocab_size})});
  }

  const ModelConfig& config_;
  const StepBucket& bucket_;
  const StepKernels& k_;
  const KernelLibrary& library_;
  const DeviceWeights& weights_;
  const DeviceState& state_;
  const StepBuffers& b_;
  const StepScratch& scratch_;
  const PeerLinks* links_;
  std::vector<StepLaunch>& launches_;
  const int rows_;
  const int code_rows_;
  int streams_ = 0;  // which of the two places holds the newest
  int layer_ = -1;
  bool beside_ = false;   // what is added runs beside what follows
  bool waiting_ = false;  // something beside is not joined yet
  bool joins_ = false;    // the next launch joins
};

}  // namespace

KernelScratch scratch_of(const KernelLibrary& library, const StepKernels& kernels,
                         const StepBucket& bucket) {
  KernelScratch most;
  for (const StepKernels::Slot slot : kernels.all)
    most.make_room_for(library.at(slot).scratch);
  if (runs_beside(bucket)) most.ones_beside = most.ones;
  return most;
}

StepProgram::StepProgram(const ModelConfig& config, const StepBucket& bucket,
                         const StepKernels& kernels, const KernelLibrary& library,
                         const DeviceWeights& weights, const DeviceState& state,
                         const StepBuffers& buffers, const StepScratch& scratch,
                         const PeerLinks* links)
    : links_(links) {
  Builder(config, bucket, kernels, library, weights, state, buffers, scratch, links, launches_)
      .build();
}

void StepProgram::launch(const cu::Stream& stream) const {
  for (const StepLaunch& one : launches_)
    launch_one(stream, one);
}

void StepProgram::launch(const StepStreams& streams) const {
  bool beside = false;
  for (const StepLaunch& one : launches_) {
    if (one.beside && !beside) {
      streams.forked.record(streams.main);
      streams.beside.wait(streams.forked);
    }
    if (one.joins) {
      streams.joined.record(streams.beside);
      streams.main.wait(streams.joined);
    }
    beside = one.beside;
    launch_one(beside ? streams.beside : streams.main, one);
  }
}

void StepProgram::launch_one(const cu::Stream& stream, const StepLaunch& one) const {
  if (one.kernel != nullptr) {
    cu::launch(stream, one.kernel->kernel.function(), one.kernel->shape, one.args.data());
    return;
  }
  GatherWords words;
  std::memcpy(&words, one.args.data(), sizeof(words));
  links_->nccl().all_gather(words.from, words.to, words.bytes, stream);
}

}  // namespace ingot::executor
