#include "src/executor/weight_loader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "src/executor/weight_pieces.hpp"

namespace ingot::executor {
namespace {

/// Pieces that the kernel is asked to read ahead of the threads, for each thread.
constexpr std::size_t kPiecesAhead = 4;
constexpr std::chrono::milliseconds kProgressInterval{100};

/// Pieces in the order of the bytes they are made of.
std::vector<WeightPiece> pieces_by_source(const Checkpoint& checkpoint,
                                          const WeightPlacement& placement,
                                          std::size_t most_bytes) {
  std::vector<WeightPiece> pieces = weight_pieces(placement, most_bytes);
  using Place = std::tuple<std::size_t, const std::byte*, std::int64_t>;  // shard, tensor, row
  std::vector<std::pair<Place, std::size_t>> order;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Place place{0, nullptr, pieces[i].row_begin};
    if (const auto tensors = piece_tensors(checkpoint, pieces[i]); !tensors.empty()) {
      std::get<0>(place) = tensors[0]->shard;
      std::get<1>(place) = tensors[0]->bytes.data();
    }
    order.emplace_back(place, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<WeightPiece> sorted;
  for (const auto& [place, i] : order)
    sorted.push_back(pieces[i]);
  return sorted;
}

/// The threads of one loading and what they share.
class Loading {
 public:
  Loading(const Checkpoint& checkpoint, const WeightPlacement& placement, WeightStore& store,
          const LoadOptions& options)
      : checkpoint_(checkpoint),
        config_(placement.config),
        store_(store),
        pieces_(pieces_by_source(checkpoint, placement, options.staging_bytes)),
        ahead_(kPiecesAhead * static_cast<std::size_t>(options.threads)) {
    staging_bytes_ = options.staging_bytes;
    for (const WeightPiece& piece : pieces_) {
      total_bytes_ += piece.bytes;
      staging_bytes_ = std::max(staging_bytes_, piece.bytes);
    }
    running_ = options.threads;
    for (int i = 0; i < options.threads; ++i)
      threads_.emplace_back([this] { run(); });
  }
  ~Loading() { stop_ = true; }  // then the threads are joined

  void watch(const LoadProgress& progress) {
    std::unique_lock lock(mutex_);
    for (bool running = true; running;) {
      running = !ended_.wait_for(lock, kProgressInterval, [this] { return running_ == 0; });
      if (!progress) continue;
      lock.unlock();
      progress(done_bytes_, total_bytes_);
      lock.lock();
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    std::size_t at = pieces_.size();
    std::exception_ptr failure;
    try {
      const auto writer = store_.open_writer(staging_bytes_);
      // What a thread took, it makes: so every piece before a failed one is tried.
      while (!stop_ && (at = next_++) < pieces_.size()) {
        const WeightPiece& piece = pieces_[at];
        if (at + ahead_ < pieces_.size()) read_ahead(checkpoint_, pieces_[at + ahead_]);
        make_piece(checkpoint_, config_, piece, writer->staging().first(piece.bytes));
        writer->write(piece.offset, piece.bytes);
        done_bytes_ += piece.bytes;
      }
      writer->finish();
    } catch (...) {
      failure = std::current_exception();
      stop_ = true;
    }
    const std::lock_guard lock(mutex_);
    if (failure && (!failure_ || at < failed_at_)) {
      failure_ = failure;
      failed_at_ = at;
    }
    --running_;
    ended_.notify_one();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  WeightStore& store_;
  std::vector<WeightPiece> pieces_;
  std::size_t ahead_;
  std::size_t staging_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;             // guarded by mutex_, as the two below
  std::exception_ptr failure_;  // of the failed piece that comes first
  std::size_t failed_at_ = 0;
  std::vector<std::jthread> threads_;  // last: joined before anything that they use goes
};

}  // namespace

void load_weights(const Checkpoint& checkpoint, const WeightPlacement& placement,
                  WeightStore& store, const LoadOptions& options, const LoadProgress& progress) {
  Loading(checkpoint, placement, store, options).watch(progress);
}

}  // namespace ingot::executor
