#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int SAMPLE_MOST_LOGPROBS = 20;
constexpr int SAMPLE_BINS = 256;
constexpr int SAMPLE_COPIES = 8;  // of the histogram, so that lanes rarely meet
// Words that one block hands on at a time: a histogram, or the entries of a list.
constexpr int SAMPLE_WORDS = SAMPLE_BINS;

// How one row's token is chosen: src/sampler/sampling_params.hpp, for the device.
struct SampleRow {
  double temperature;  // below the normal numbers: the likeliest, lowest id on ties
  double top_p, min_p;
  double repetition_penalty, presence_penalty, frequency_penalty;
  u64 seed;
  i64 position;                // tokens that precede the one to be chosen
  int top_k;                   // 0: off
  int bias_begin, bias_count;  // entries of args.bias_ids and bias_values
  int has_penalties;           // read (and keep) the row's counts
  int logprobs;                // -1: none; else alternatives to report, up to 20
  int reserved;
};

struct SampleLogprob {
  int id;
  float logit, logprob;  // of the raw logits
};

struct SampleResult {
  int token;  // -1: none could be chosen
  // 0: fine. Above: so many logits were NaN or +inf. Below: all were -inf.
  int bad_logits;
  SampleLogprob chosen;  // written when logprobs >= 0
  int top_count;         // written when logprobs >= 0
  SampleLogprob top[SAMPLE_MOST_LOGPROBS];
};

struct SampleTokensArgs {
  const float* logits;    // [rows, stride], 16-byte aligned
  const SampleRow* rows;  // [rows]
  const int* bias_ids;    // logit bias: token ids in range, and what is added
  const double* bias_values;
  u16* counts;            // [rows, stride] of each token: bit 15, it is in the prompt; the others,
                          // how often it was generated; the chosen token's goes up (rows with
                          // penalties), and stays at 32767
  float* adjusted;        // [rows, stride] scratch of rows with penalties or bias
  SampleResult* results;  // [rows]
  u32* counters;  // [rows, 2], 8-byte aligned: zero before the first launch, then left alone;
                  // unused when SPLIT == 1
  u64* exchange;  // sample_exchange_bytes(...); unused when SPLIT == 1
  int vocabulary;
  int stride;  // elements between rows, a multiple of 4, at least vocabulary
};

constexpr i64 sample_exchange_bytes(int rows, int split) {
  return split == 1 ? 0 : 8LL * 2 * SAMPLE_WORDS * rows * split;
}

struct SampleShared {
  u64 histogram[SAMPLE_COPIES][SAMPLE_BINS];
  u64 mine[SAMPLE_WORDS];  // what this block hands on
  u64 found[4];            // a search's result
  u64 warp_words[2][32];   // of a reduction
  SampleLogprob best[SAMPLE_MOST_LOGPROBS];
};
constexpr unsigned kSampleSmemBytes = sizeof(SampleShared);

}  // namespace ingot::kernels
