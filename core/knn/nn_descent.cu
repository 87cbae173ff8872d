// GNND on the GPU: "Large-Scale Approximate k-NN Graph Construction on GPU", Algorithm 1, section 4.
// What it computes is said in nn_descent.h; the CPU's version is nn_descent.cpp, and both give equal
// lists, since nothing in either depends on who comes first.
//
//   paper                       here
//   S, s, u, v                  codes, row, and rows that meet at it
//   G[s]                        keys: distance, row and NEW or OLD in 64 bits, ascending (RowKey)
//   G_new, G_old                own and reverse samples of a kind (kNew, kOld)
//   p, k, MaxIter               p, k, iterations
//   D                           sums of a warp in registers; only what is nearest leaves them
//   GetNearestObject            nearest_in_rows, nearest_in_columns
//   InsertIntoNNList            offer_all, MergeOffers, InsertIntoList
//   phi(G)                      the sum of the distances returned
//
// Kernels of a round: SampleOwn (line 8) - CountReverse, a scan, ScatterReverse, SelectReverse for
// each kind (section 4.1, reverse) - CrossMatch (lines 9 to 33, a block for each row) and MergeOffers
// (a warp for each row), in turn for some slices of the rows.
//
// Bytes and operations of a round and row, at p = 16, k = 64, 128 columns of bytes:
//   SampleOwn      512 bytes of keys read, 128 of samples written, flags written back
//   reverse        2 x 16 edges counted and scattered by atomics: some 300 bytes
//   CrossMatch     64 codes gathered, 8 KB; 16 products of 16 x 8 x 32 x 4 columns, 64 instructions
//                  on tensor cores; 96 offers, each a look at 8 bytes of `worst`; those that pass take
//                  a place by an atomic and write 8 bytes
//   MergeOffers    512 bytes of list and 256 of offers read, 512 written, once a slice
// At 3 TB/s that is on paper 3 ms for the gathering of 1M rows, as much for offers in the first round,
// when nearly all pass, and 0.5 ms a merge. Measured on one NVIDIA H100, 100k rows, k 48, p 16, a later
// round: CrossMatch 1.3 ms, the merges 0.19, all sampling 0.4. CrossMatch moves 28 KB a row through the
// second cache, at 2 TB/s, with two fifths of the warps resident.
//
// Tensor cores multiply bytes exactly, so distances are the CPU's integers. Wide codes (rare) are
// summed in the CPU's lanes (distance/lanes_cuda.h), some fifty times slower.
//
// Departures from the paper.
//   - No segments: the k smallest of all that was offered do not depend on the order of offers, those
//     of segments do on the segment a row falls into, and a segment keeps 32 entries however near the
//     others' are. Offers that beat the list's last entry go to a row's kOffers places, taken by an
//     atomic, and a warp merges them when the slice is done. Where the places do not suffice (hubs),
//     the offer is inserted at once under the row's lock, as in the paper. With locks for all of them
//     SIFT 100k at k 64, p 16 took 34.4 ms instead of 14.7 (one NVIDIA H100): an insertion is five
//     dependent trips to memory, and a warp makes one at a time.
//   - The reverse samples of a row are those with the smallest hash of both ends and the round, not
//     those that come first.
//   - 16 x 8 x 32 tiles of the tensor cores instead of 16 x 16 of threads, for NEW-NEW too: the
//     triangle that is not needed costs less than the square root in the paper's equation 1.
// Not taken: packed 64-bit atomics into unsorted lists, whose maximum would have to be searched for
// each offer.

#include "knn/nn_descent_cuda.h"
#include "knn/nn_descent_rounds.cuh"

namespace gannet::cuda {

uint32_t nn_descent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                    uint32_t* distances, const Stream& stream, const Execution& execution) {
  descent::NnDescent<descent::OfferAndMerge> rounds(codes, params, neighbors, distances, stream,
                                                    execution);
  return rounds.run();
}

}  // namespace gannet::cuda
