// GNND on the GPU: "Large-Scale Approximate k-NN Graph Construction on GPU", Algorithm 1, section 4.
// Its result is defined in nn_descent.h; the CPU's version is nn_descent.cpp, and both give equal
// lists, since nothing in either depends on the order of threads. The kernels are in nn_descent_steps.cuh,
// the order in which they are started in nn_descent_rounds.cuh.
//
//   paper                       here
//   S, s, u, v                  codes, row, and rows that meet at it
//   G[s]                        keys: distance, row and NEW or OLD in 64 bits, ascending (RowKey)
//   G_new, G_old                samples of a kind (kNew, kOld), 2 p places a row
//   p, k, MaxIter               p, k, iterations
//   D                           sums of a warp in registers; only the nearest leave them
//   GetNearestObject            nearest_in_rows, nearest_in_columns
//   Algorithm 3 (GGM)           StartWithTwoSets, and the pairs that SampleOwn and CrossMatch leave out (TwoSets)
//   InsertIntoNNList            OfferAndMerge::give, MergeOffers, InsertIntoList
//   phi(G)                      the sum of the distances returned
//
// Kernels of a round: SampleOwn (line 8, counts how often each row is sampled) - a scan - ScatterReverse -
// GatherSamples (section 4.1: reverse samples appended up to 2 p, sorted by a warp, repetitions
// removed) - CrossMatch (lines 9 to 33, a warp for each row) and MergeOffers (a warp for each row), in
// turn for some slices of the rows.
//
// Point by point. As in the paper: the first p NEW and p OLD entries of a list are sampled; a list
// starts with p random entries; only sampled entries turn OLD; reverse samples fill up to 2 p places;
// NEW meets NEW, and NEW meets OLD; a NEW sample is offered its nearest NEW and its nearest OLD one, an OLD
// sample its nearest NEW one. Departures, with their gains (SIFT 1M x 128 bytes, k 64, p 16, one
// NVIDIA H200, all 11 rounds; tests/gpu/gnnd_figures.cu builds the paper's ways from the same steps):
//   - No locks in the usual case. Offers that beat a list's last entry go to a row's kOffers places,
//     taken by an atomic, and a warp merges them when the slice is done; only an offer that finds no place (hubs)
//     is inserted at once under the row's lock, as in the paper. 139 ms; with one lock a list (GNND-r2)
//     603, with a lock for each 32 entries (GNND) 679, with all pairs entered (GNND-r1) 871: an insertion
//     is five dependent trips to memory, and a warp makes one at a time.
//   - No segments: the k smallest of all that was offered do not depend on the order of offers, those
//     of segments do on the segment a row falls into, and a segment keeps 32 entries however near the
//     others' are: recall@10 .9856 for .9861.
//   - The reverse samples of a row are those with the smallest hash of both ends and the round, not
//     those that come first.
//   - A warp for each row, not a block. Codes of 32 samples come in 8 loads of 16 bytes a lane and are
//     operands of tensor cores as they are (dataset/code_fragments_cuda.h), so there is neither shared
//     memory for vectors nor a barrier, and equation 1 is not needed. With a block of 128 threads, tiles
//     in shared memory and keys of 64 bits the whole took 175 ms, at p 32 309 ms, with warps 139 and
//     208. The triangle of NEW-NEW that is not needed costs less than the square root.
//   - The end is classic NN-Descent's rule (nn_descent.h).
//
// Bytes and operations of a round and row, at p = 16, k = 64, 128 columns of bytes:
//   SampleOwn      512 bytes of keys read, 128 of samples written, an atomic for each, flags written
//   reverse        32 edges scattered by atomics; 128 + 128 bytes of samples read, 256 written
//   CrossMatch     64 codes gathered, 8 KB, and 64 times 32 bytes for lengths and as many for last keys;
//                  64 products of 16 x 8 x 32 columns; a key of 32 bits of each of 1,536 pairs takes two
//                  instructions; 96 offers, those that pass take a place by an atomic and write 8 bytes
//   MergeOffers    512 bytes of list and 256 of offers read, 512 written, once a slice
// At 4.3 TB/s that is 3 ms for the gathering of 1M rows. Measured, k 48: SampleOwn 0.5 ms, ScatterReverse
// 1.0 to 1.7, GatherSamples 1.1 to 1.9, CrossMatch 3.7 in the first and in the last round, where it waits
// for memory with 14 of 64 warps resident, MergeOffers 0.9 a slice.
//
// MergeOffers holds a list of k entries a warp in shared memory, 16 KB a block of four warps at 512, where 52 warps are
// resident. An insertion under the lock moves windows of 256 entries, the last first.
//
// Wide codes (rare) are summed in the CPU's lanes (distance/lanes_cuda.h), some fifty times slower.
//
// Rejected. Two slices of equal size: in rounds 2 to 6 so many offers found no place that a first half
// took up to 16 ms, the second 5. First slices for 26 offers to a row instead of 16: 149 ms. Registers
// for 3 or for 5 blocks of CrossMatch instead of 4: 151 ms both. Packed 64-bit atomics into unsorted
// lists: the maximum would have to be searched for each offer. At most p reverse samples instead of up
// to 2 p in all: recall@10 .9853 for .9861.

#include "backend/launch_items.cuh"
#include "knn/nn_descent_cuda.h"
#include "knn/nn_descent_rounds.cuh"

namespace gannet::cuda {
namespace {

/// Squares with offsets. A distance is x.x + y.y - 2 x.y, so an offset added to x.x and y.y is added to it.
struct AddOffsets {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    const uint32_t* squares;  // [rows]
    const uint32_t* offsets;  // [rows]
    uint32_t* sums;           // [rows]
  };
  const Args& args;
  __device__ void run(uint64_t row) const { args.sums[row] = args.squares[row] + args.offsets[row]; }
};

}  // namespace

uint32_t nn_descent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                    uint32_t* distances, const Stream& stream, const Execution& execution,
                    const TwoSets& sets) {
  descent::NnDescent<descent::OfferAndMerge> rounds(codes, params, neighbors, distances, stream, execution,
                                                    sets);
  return rounds.run();
}

uint32_t nn_descent_by_products(const CodesView& codes, const uint32_t* offsets, uint32_t offset_most,
                                const NnDescentParams& params, uint32_t* neighbors, const Stream& stream,
                                const Execution& execution) {
  const DeviceArray<uint32_t> sums(codes.rows, stream);
  launch_items<AddOffsets>("add_offsets", codes.rows, AddOffsets::Args{codes.squares, offsets, sums.data()},
                           stream);
  CodesView with_offsets = codes;
  with_offsets.squares = sums.data();
  descent::NnDescent<descent::OfferAndMerge> rounds(with_offsets, params, neighbors, nullptr, stream,
                                                    execution, {}, offset_most);
  return rounds.run();
}

}  // namespace gannet::cuda
