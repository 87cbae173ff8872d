// Cells: the lists. The nearest of a row's candidates, rounds of neighbours' neighbours, and the lists as
// others read them.
//
//   here      candidate   a row (by its place) that a list may want
//             pending     candidates that wait until there are 32 of them to be compared at once
//             found       candidates that are nearer than the list's last entry; 32 are merged at once
//             new         found by the last round
//             reverse     of a row: rows that found it in the last round, up to 64
//             offered     a Bloom filter of 1,024 words, two bits of one for each row that was in the list or
//                         offered
//
// A warp owns a row. Its list stays sorted in registers, 32 keys each: of 32 bits, distance and a slot
// where place and flag stand, for rows of 128 bytes, which halves the work of sorting; of 64 bits for others.
// Distances are exact: a team of eight lanes reads a row of 128 bytes at once, of four lanes 64 bytes of a
// longer or shorter one; tensor cores multiply them with the own row, dp4a sums their squares. A list is the
// smallest keys of the rows offered, so that the order of offers does not matter; that a filter takes
// one candidate for another (some 0.2 %) follows from their order in the lists, which is fixed.
//
//   KeepNearest    of a row's 1,000 candidates finds by bisection a key that 64 to 96 are below, sorts
//                  these and keeps 64, whose distances the first round measures
//   ListReverse    the reverse edges of new entries near the head of each list; a source goes to the place
//                  of its hash, where the smallest number stays
//   RefineRow      offers the reverse list, and the first 32 entries of the lists of the first 40 to 64
//                  entries; a pair is looked at only if one of its two edges is new
//   WriteRow       lists by row number; of rows at equal distance the smaller number comes first
//
// Bytes of a first round and row, 128 columns: 40 lists of 128 bytes and some 800 codes of 128: 110 KB,
// nearly all from the second cache. A second round finds 3 neighbours of a row where the first finds 20 to
// 30, with 400 codes. No unit is busy all the time: instructions are issued in 0.68 of all cycles, the first
// cache works in 0.61 of them and the second in 0.63 (teams of four lanes, which ask for each line twice:
// 0.59, 0.89 and 0.67, in the same time).
//
// Lists of more than 256 entries have keys of 64 bits whatever the rows are, since 512 entries and 64 found ones need
// ten bits of a slot. RefineRow takes 26.7 KB of shared memory a block then, as with long keys of any length.
//
// The mean does not show the list quality that a graph needs: two rounds of 48 lists behind 63 probes find .9741
// of the 32 nearest in 40.4 ms, and a search needs 4.5 % more distances at recall .95 than with exact lists
// of 96; one round of 40 lists behind 126 probes finds .9683 in 34.8 ms and needs 3.6 % more (one of 48
// behind 96 probes .9638, 33.7 ms, 4.1 %). Rounds help rows whose neighbours' lists are good.
//
// Looked into by experiment on one NVIDIA H200, 1M x 128 bytes: without reverse lists recall@32 loses two
// points; leaving out pairs of rows whose chunks were compared loses five, since classes hide neighbours
// there; candidates that must be met twice lose seven. A filter of 2 KB takes 41.1 ms for all
// of cells where one of 4 KB takes 39.9, and loses .03 points. Reverse lists of 64 places, made of 32
// entries of each list, find .5 points more of the 32 nearest than half of both, in
// 1 ms. Lists, milliseconds and recall@10: two rounds that read 32 entries of the lists of 32 neighbours 38.9,
// .9893, of 40 42.4, .9913, of 48 45.8, .9929; behind 63 probes two rounds of 64 47.2, .9902, three 55.0,
// .9924. Reading 64 entries of each list gains less than more lists and rounds do for the time: of 40 lists
// 55.0, .9927, of 48 61.9, .9942. Eight blocks at once of 64 registers: 1.3 ms longer.
// Half of a row's columns tell little: a bound on their distance that keeps all neighbours refuses one
// candidate in five. Four lists at once, 16 bytes a lane, with __match_any_sync for rows that two of them
// hold: 46 ms for all of cells instead of 41.

#include <algorithm>
#include <type_traits>

#include "ann.h"
#include "backend/launch_items.cuh"
#include "distance/lanes_cuda.h"
#include "knn/cells_cuda.h"
#include "knn/cells_tiles_cuda.h"
#include "traverse/row_key.h"
#include "traverse/visited_words.cuh"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kWarps = 4;  // of a block, each with a row
constexpr uint32_t kThreads = kWarps * 32;
constexpr uint32_t kExpandedMax = 64;
constexpr uint32_t kFilterBits = 10;
constexpr uint64_t kLaunchBytes = 1 << 28;  // of rows that a round refines at once, some 15 ms

struct Args {
  CellsView map;
  Candidates candidates;
  PlaceLists lists;
  PlaceLists next;
  uint32_t* reverse;        // [rows, kReverse] places, kNone in empty ones
  uint32_t reverse_places;  // of a row
  uint32_t reversed;        // first entries of a list whose reverse edges are listed
  uint32_t expanded;
  bool as_entries;  // whether KeepNearest writes place << 1 | 1 instead of places
  bool measured;    // whether `lists` have distances
  uint32_t first;   // place of this launch
  uint32_t end;
  uint32_t k;
  uint32_t* neighbors;  // [rows, k]
  uint32_t* distances;  // [rows, k], or null
};

__device__ uint32_t warp_place(const Args& args) {
  return args.first + blockIdx.x * kWarps + threadIdx.x / 32;
}

/// How rows are compared: bytes of kNarrowBytes, of any number, or floats.
enum class Form { kNarrow, kBytes, kFloats };

constexpr uint32_t kOffered = 128;  // candidates that may be offered before those that wait are compared
constexpr uint32_t kQueue = 256;    // a power of two that holds them and 31 more

/// A list while it is made.
template <uint32_t kRegisters, Form kForm>
struct RowList {
  static constexpr bool kNarrow = kForm == Form::kNarrow;
  static constexpr uint32_t kTeam = kNarrow ? 8 : 4;  // lanes that read a row together
  static constexpr uint32_t kRounds = kTeam;          // of all teams, for 32 rows
  static_assert(kNarrowBytes == 8 * sizeof(uint4) && kPanelBytes == 4 * sizeof(uint4));
  static constexpr uint32_t kLength = 32 * kRegisters;
  // A narrow row's distance is below 2^23. Its key has a slot below, of kLength for the list and 64 for
  // the rows found; that of a wide row has distance and entry.
  using Key = std::conditional_t<kNarrow, uint32_t, uint64_t>;
  static constexpr Key kNoKey = static_cast<Key>(RowKey::kNone);
  static constexpr uint32_t kSlotBits = 9;
  static_assert(!kNarrow || kLength + 64 <= 1u << kSlotBits);
  static constexpr uint32_t kSlots = kNarrow ? kLength + 64 : 1;
  struct Shared {
    Key found[64];
    alignas(16) uint32_t pending[kQueue];  // a ring of entries: place << 1 | new
    uint32_t entries[kSlots];              // of slots
  };

  const CodesView& codes;
  Shared& shared;
  uint32_t place;
  uint32_t lane = threadIdx.x % 32;
  Key keys[kRegisters];
  Key worst = kNoKey;
  uint32_t found_count = 0;
  uint32_t pending_first = 0;  // a multiple of 32
  uint32_t pending_end = 0;
  uint32_t square;
  uint32_t own[2][2];   // of a narrow row, operands of narrow_distance in even and odd rounds
  uint32_t weights[2];  // of a lane's products in those: -2, or 0 where others count

  __device__ RowList(const CodesView& codes, Shared& shared, uint32_t place)
      : codes(codes),
        shared(shared),
        place(place),
        square(kForm == Form::kFloats ? 0 : codes.squares[place]) {
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) keys[r] = kNoKey;
    if constexpr (kNarrow) {
      // The words of a row's first half for columns 0 and 1, of its second for 2 and 3; the same for 4 to 7.
      const uint4 all = piece(place, lane / 8 % 2 * 4 + lane % 4);
      const uint32_t words[2] = {lane / 4 % 2 != 0 ? all.y : all.x, lane / 4 % 2 != 0 ? all.w : all.z};
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        own[0][i] = lane < 16 ? words[i] : 0;
        own[1][i] = lane < 16 ? 0 : words[i];
        weights[i] = lane % 4 == 2 * i + lane / 4 % 2 ? static_cast<uint32_t>(-2) : 0;
      }
    }
  }

  __device__ uint4 piece(uint32_t other, uint32_t number) const {
    return reinterpret_cast<const uint4*>(codes.row(other))[number];
  }

  static __device__ uint32_t dot(const uint4& a, const uint4& b, uint32_t sum) {
    return __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, sum))));
  }

  /// Puts candidates, place << 1 | new, into the queue.
  __device__ void offer(uint32_t other, bool there) {
    const uint32_t lanes = __ballot_sync(~0u, there);
    if (there) shared.pending[(pending_end + __popc(lanes & ((1u << lane) - 1))) % kQueue] = other;
    pending_end += __popc(lanes);
  }

  /// Compares candidates while 32 of them wait, and the rest in the end if these are the last.
  __device__ void compare_pending(bool last) {
    if (last) shared.pending[(pending_end + lane) % kQueue] = place << 1;  // rows too, which do not count
    __syncwarp();
    while (pending_end - pending_first >= 32 || (last && pending_end != pending_first)) {
      compare(min(pending_end - pending_first, 32u));
      if (found_count >= 32) merge();
    }
    if (last && found_count != 0) merge();
  }

  /// Compares the first `count` pending rows and takes them out of the queue.
  __device__ void compare(uint32_t count) {
    const uint32_t* pending = shared.pending + pending_first % kQueue;
    uint32_t mine = lane;
    uint32_t distance;
    if constexpr (kForm == Form::kFloats) {
      distance = float_distance(pending);
    } else if constexpr (kNarrow) {
      distance = narrow_distance(pending);
    } else {
      mine = lane % kTeam * 8 + lane / kTeam;
      distance = byte_distance(pending);
    }
    const uint32_t entry = pending[mine];
    const bool near = mine < count && is_near(distance, entry);
    const uint32_t lanes = __ballot_sync(~0u, near);
    if (near) push(found_count + __popc(lanes & ((1u << lane) - 1)), distance, entry);
    found_count += __popc(lanes);
    pending_first += count;
    __syncwarp();
  }

  /// That of the row pending in place `lane`, in the lanes of distance/lanes_cuda.h.
  __device__ uint32_t float_distance(const uint32_t* pending) const {
    LaneSums sums;
    const uint32_t columns = codes.stride / sizeof(float);
    const auto value_of = [&](uint32_t row, uint32_t column) {
      return column < columns ? reinterpret_cast<const float*>(codes.row(row))[column] : 0.0f;
    };
    for (uint32_t column = lane; column < columns + lane; column += LaneSums::kLanes) {
      const float low = value_of(place, column);
      const float high = value_of(place, column + 32);
#pragma unroll
      for (uint32_t i = 0; i < LaneSums::kPairs; ++i) {
        const uint32_t other = pending[i] >> 1;
        sums.low[i] = __fadd_rn(sums.low[i], LaneSums::product<false>(value_of(other, column), low));
        sums.high[i] = __fadd_rn(sums.high[i], LaneSums::product<false>(value_of(other, column + 32), high));
      }
    }
    return __float_as_uint(sums.fold(cg::tiled_partition<32>(cg::this_thread_block())));
  }

  /// That of the row pending in place `lane`. Eight lanes read a row at once, 16 bytes each, so that a line
  /// of the cache is read once.
  ///
  /// To an instruction of tensor cores the four words of a lane are two of one left row and two of
  /// another, and the two halves of a row are neighbouring left rows. It multiplies both with all of this
  /// row's words that a column has; lane t of four reads the sums of one half where both are of that
  /// half: t = 0 of a first, t = 1 of a second one. Columns 4 to 7, where t is 2 and 3, serve the next
  /// round. No register has to move for it.
  __device__ uint32_t narrow_distance(const uint32_t* pending) const {
    const uint8_t* column = codes.data + lane % kTeam * sizeof(uint4);
    const auto piece_of = [&](uint32_t entry) {  // place << 1 | new
      return *reinterpret_cast<const uint4*>(column + uint64_t{entry & ~1u} * (kNarrowBytes / 2));
    };
    uint4 pieces[kRounds];
#pragma unroll
    for (uint32_t r = 0; r < kRounds; r += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(pending + lane / kTeam * kRounds + r);
      pieces[r] = piece_of(four.x);
      pieces[r + 1] = piece_of(four.y);
      pieces[r + 2] = piece_of(four.z);
      pieces[r + 3] = piece_of(four.w);
    }
    uint32_t sums[kRounds];
#pragma unroll
    for (uint32_t r = 0; r < kRounds; r += 2) {
      int32_t products[4] = {};
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint4& words = pieces[r + i];
        const uint32_t left[4] = {words.x, words.y, words.z, words.w};
        multiply_bytes(products, left, own[i]);
      }
      const uint32_t product = static_cast<uint32_t>(products[0] + products[3]);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) sums[r + i] = dot(pieces[r + i], pieces[r + i], product * weights[i]);
    }
    return fold(sums) + square;
  }

  /// Half of the sums change lanes, again and again, so that lane r of a team ends with all of round r.
  __device__ uint32_t fold(uint32_t (&sums)[kRounds]) const {
#pragma unroll
    for (uint32_t half = kRounds / 2; half != 0; half /= 2) {
      const bool upper = (lane & half) != 0;
#pragma unroll
      for (uint32_t r = 0; r < half; ++r) {
        const uint32_t kept = upper ? sums[r + half] : sums[r];
        const uint32_t given = upper ? sums[r] : sums[r + half];
        sums[r] = kept + __shfl_xor_sync(~0u, given, half);
      }
    }
    return sums[0];
  }

  /// That of the row pending in place lane % 4 * 8 + lane / 4. An instruction takes the four words of one
  /// row as those of two, of which it multiplies one pair with the first and third word of this row in even
  /// columns, and the other with the second and fourth in odd ones.
  __device__ uint32_t byte_distance(const uint32_t* pending) const {
    int32_t products[kRounds][4] = {};
    uint32_t sums[kRounds] = {};
    uint32_t others[kRounds];
#pragma unroll
    for (uint32_t r = 0; r < kRounds; ++r) others[r] = pending[8 * r + lane / kTeam] >> 1;
    const bool odd = (lane / kTeam & 1) != 0;
#pragma unroll 2
    for (uint32_t panel = 0; panel < codes.stride / kPanelBytes; ++panel) {
      const uint32_t number = panel * kPieces + lane % kTeam;
      uint4 pieces[kRounds];
#pragma unroll
      for (uint32_t r = 0; r < kRounds; ++r) pieces[r] = piece(others[r], number);
      const uint4 all = piece(place, number);
      const uint32_t mine[2] = {odd ? all.y : all.x, odd ? all.w : all.z};
#pragma unroll
      for (uint32_t r = 0; r < kRounds; ++r) {
        const uint32_t words[4] = {pieces[r].x, pieces[r].y, pieces[r].z, pieces[r].w};
        multiply_bytes(products[r], words, mine);
        sums[r] = dot(pieces[r], pieces[r], sums[r]);
      }
    }
#pragma unroll
    for (uint32_t r = 0; r < kRounds; ++r) {
      // All lanes of the team have the product; one of them counts it.
      const uint32_t product = static_cast<uint32_t>(products[r][0] + products[r][3]);
      sums[r] -= lane % kTeam == 0 ? 2 * product : 0;
    }
    return fold(sums) + square;
  }

  __device__ bool is_near(uint32_t distance, uint32_t entry) const {
    if constexpr (kNarrow)
      return distance < worst >> kSlotBits;
    else
      return (uint64_t{distance} << 32 | entry) < worst;
  }

  __device__ void push(uint32_t at, uint32_t distance, uint32_t entry) {
    if constexpr (kNarrow) {
      shared.found[at] = distance << kSlotBits | (kLength + at);
      shared.entries[kLength + at] = entry;
    } else {
      shared.found[at] = uint64_t{distance} << 32 | entry;
    }
  }

  /// An entry of the last round's list.
  __device__ void take(uint32_t r, uint32_t distance, uint32_t entry) {
    if constexpr (kNarrow) {
      keys[r] = distance << kSlotBits | (32 * r + lane);
      shared.entries[32 * r + lane] = entry;
    } else {
      keys[r] = uint64_t{distance} << 32 | entry;
    }
  }

  /// Takes the last 32 of the keys found, or all of fewer, into the list.
  __device__ void merge() {
    const uint32_t left = found_count > 32 ? found_count - 32 : 0;
    const uint32_t i = left + lane;
    merge_keys(keys, sort_keys(i < found_count ? shared.found[i] : kNoKey));
    if constexpr (kNarrow) {
      // Slots follow the new order.
      constexpr uint32_t kMask = (1u << kSlotBits) - 1;
      uint32_t entries[kRegisters];
#pragma unroll
      for (uint32_t r = 0; r < kRegisters; ++r)
        entries[r] = keys[r] == kNoKey ? kNone : shared.entries[keys[r] & kMask];
      __syncwarp();
#pragma unroll
      for (uint32_t r = 0; r < kRegisters; ++r) {
        shared.entries[32 * r + lane] = entries[r];
        if (keys[r] != kNoKey) keys[r] = (keys[r] & ~kMask) | (32 * r + lane);
      }
    }
    worst = __shfl_sync(~0u, keys[kRegisters - 1], 31);
    found_count = left;
    __syncwarp();
  }

  __device__ void write(const PlaceLists& lists) const {
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint64_t at = uint64_t{place} * lists.length + 32 * r + lane;
      uint32_t entry = static_cast<uint32_t>(keys[r]);
      uint32_t distance = RowKey::distance(keys[r]);
      if constexpr (kNarrow) {
        entry = keys[r] == kNoKey ? kNone : shared.entries[32 * r + lane];
        distance = keys[r] == kNoKey ? UINT32_MAX : keys[r] >> kSlotBits;
      }
      lists.near[at] = entry;
      lists.distances[at] = distance;
    }
  }
};

/// The list of a row from its candidates, in the order of their keys.
template <uint32_t kRegisters, uint32_t kProbes>
struct KeepNearest {
  static constexpr uint32_t kBlocks = 8;
  static constexpr uint32_t kWanted = 32 * kRegisters;
  static constexpr uint32_t kEnough = kWanted + 32;
  static constexpr uint32_t kKeyRegisters = (kProbes * kProbeKeys + 31) / 32;
  struct Shared {
    uint32_t kept[kWarps][kEnough];
  };
  const Args& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;

  __device__ void run() {
    const uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32;
    if (row >= args.candidates.rows) return;
    uint32_t* kept = shared.kept[threadIdx.x / 32];
    const uint32_t count = cut(row, kept);
    uint32_t list[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) list[r] = kNoCandidate;
    for (uint32_t first = 0; first < count; first += 32)
      merge_keys(list, sort_keys(first + lane < count ? kept[first + lane] : kNoCandidate));
    const uint64_t to = uint64_t{args.candidates.first + row} * args.lists.length;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r)
      args.lists.near[to + 32 * r + lane] = list[r] == kNoCandidate ? kNone : written(place_of(row, list[r]));
  }

  /// Writes down the best candidates; how many.
  __device__ uint32_t cut(uint32_t row, uint32_t* kept) const {
    uint32_t keys[kKeyRegisters];
    const uint32_t width = args.candidates.probes * kProbeKeys;
    const uint32_t* from = args.candidates.keys + uint64_t{row} * width;
#pragma unroll
    for (uint32_t r = 0; r < kKeyRegisters; ++r)
      keys[r] = 32 * r + lane < width ? from[32 * r + lane] : kNoCandidate;
    const uint32_t bound = find_cut(keys, kWanted, kEnough);
    uint32_t count = 0;
#pragma unroll
    for (uint32_t r = 0; r < kKeyRegisters; ++r) {
      const bool mine = keys[r] <= bound;
      const uint32_t lanes = __ballot_sync(~0u, mine);
      if (mine) kept[count + __popc(lanes & ((1u << lane) - 1))] = keys[r];
      count += __popc(lanes);
    }
    __syncwarp();
    return count;
  }

  __device__ uint32_t written(uint32_t place) const { return args.as_entries ? place << 1 | 1 : place; }

  __device__ uint32_t place_of(uint32_t row, uint32_t key) const {
    const uint32_t slot = key >> 7 & 0xff;
    const uint32_t chunk = args.candidates.slots[uint64_t{row} * args.candidates.probes + slot];
    return args.map.chunks[chunk].first + (key & 0x7f);
  }
};

/// A thread for each of the first entries of a list.
struct ListReverse {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t item) const {
    // A division of 64 bits takes longer than all the rest.
    const uint32_t place = item >> 32 == 0 ? static_cast<uint32_t>(item) / args.reversed
                                           : static_cast<uint32_t>(item / args.reversed);
    const uint64_t rank = item - uint64_t{place} * args.reversed;
    const uint32_t entry = args.lists.near[uint64_t{place} * args.lists.length + rank];
    if (entry == kNone || (entry & 1) == 0) return;
    const uint32_t slot = __umulhi(place * 0x9e3779b1u, args.reverse_places);
    atomicMin(&args.reverse[uint64_t{entry >> 1} * args.reverse_places + slot], place);
  }
};

/// Rows that were offered to a list, by place. Two bits of one word each.
using OfferedFilter = VisitedWords<2, kFilterBits>;

template <uint32_t kRegisters, Form kForm>
struct RefineRow {
  static constexpr uint32_t kRead = 32;                // entries of each list
  static constexpr uint32_t kStep = 4;                 // lists read at once, while four more are on their way
  static constexpr uint32_t kTurn = kOffered / kRead;  // lists that are offered at once
  static_assert(kStep % kTurn == 0);
  using List = RowList<kRegisters, kForm>;
  static constexpr uint32_t kBlocks = kRegisters > 2 || kForm == Form::kFloats ? 4
                                      : kForm == Form::kNarrow                 ? 7
                                                                               : 6;
  struct RowShared {
    alignas(16) uint32_t entries[2][kStep][kRead];
    alignas(16) uint32_t offered[OfferedFilter::kWords];
    typename List::Shared list;
  };
  struct Shared {
    RowShared rows[kWarps];
  };
  const Args& args;
  Shared& all;
  uint32_t lane = threadIdx.x % 32;
  uint32_t place = warp_place(args);
  RowShared& shared = all.rows[threadIdx.x / 32];
  const uint32_t* near = args.lists.near + uint64_t{place} * args.lists.length;
  uint32_t first_entries[2];  // lane and 32 + lane of the list
  uint32_t new_lists[2];      // which of those are new, as bits

  __device__ void run() {
    if (place >= args.end) return;
    OfferedFilter offered{shared.offered};
    for (uint32_t i = lane; i < OfferedFilter::kWords / 4; i += 32)
      reinterpret_cast<uint4*>(shared.offered)[i] = make_uint4(0, 0, 0, 0);
    List list(args.map.exact, shared.list, place);
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      first_entries[r] = near[32 * r + lane];
      new_lists[r] = __ballot_sync(~0u, (first_entries[r] & 1) != 0);
    }
    fetch(0);
    __syncwarp();  // the filter is empty
    if (lane == 0) offered.add(OfferedFilter::place_of(place));
    __syncwarp();
    if (args.measured) load(list, offered);

    // Its own list if that was not measured yet, then the reverse one, then those of neighbours.
    constexpr int32_t kOwnTurns = (32 * kRegisters + kOffered - 1) / kOffered;
    const int32_t turns = static_cast<int32_t>((args.expanded + kTurn - 1) / kTurn);
#pragma unroll 1
    for (int32_t turn = args.measured ? -1 : -1 - kOwnTurns; turn < turns; ++turn) {
      if (turn >= 0)
        offer_lists(list, offered, static_cast<uint32_t>(turn) * kTurn);
      else if (turn == -1)
        offer_reverse(list, offered);
      else
        offer_own(list, offered, static_cast<uint32_t>(turn + 1 + kOwnTurns) * kOffered);
      list.compare_pending(turn + 1 == turns);
    }
    list.write(args.next);
  }

  /// Asks for the lists of a step.
  __device__ void fetch(uint32_t step) const {
    const uint32_t i = step * kStep + lane / 8;
    const uint32_t entry = __shfl_sync(~0u, first_entries[step * kStep / 32], i % 32);
    const uint32_t* from = args.lists.near + uint64_t{entry >> 1} * args.lists.length;
#pragma unroll
    for (uint32_t first = lane % 8 * 4; first < kRead; first += 32) {
      uint4* to = reinterpret_cast<uint4*>(&shared.entries[step % 2][lane / 8][first]);
      if (i < args.expanded && entry != kNone)
        copy_piece(to, from + first);
      else
        *to = make_uint4(kNone, kNone, kNone, kNone);
    }
    commit_copies();
  }

  /// Offers a row that was not offered before.
  __device__ void offer(List& list, const OfferedFilter& offered, uint32_t entry, bool there) const {
    const BloomPlace at = OfferedFilter::place_of(entry >> 1);
    const bool fresh = there && !offered.has(at);
    __syncwarp();  // all have looked before any adds, so that lanes do not race
    if (fresh) offered.add(at);
    list.offer(entry, fresh);
    __syncwarp();
  }

  __device__ void offer_own(List& list, const OfferedFilter& offered, uint32_t begin) const {
#pragma unroll 1
    for (uint32_t first = begin; first < min(begin + kOffered, 32 * kRegisters); first += 32) {
      const uint32_t entry = near[first + lane];
      offer(list, offered, entry & ~1u, entry != kNone);
    }
  }

  __device__ void offer_reverse(List& list, const OfferedFilter& offered) const {
    const uint32_t* sources = args.reverse + uint64_t{place} * args.reverse_places;
#pragma unroll 1
    for (uint32_t first = 0; first < args.reverse_places; first += 32) {
      const uint32_t source = sources[first + lane];
      offer(list, offered, source << 1 | 1, source != kNone);
    }
  }

  /// Offers the entries of the lists from `begin` on, of pairs with a new edge.
  __device__ void offer_lists(List& list, const OfferedFilter& offered, uint32_t begin) const {
    const uint32_t step = begin / kStep;
    if (begin % kStep == 0) {
      if (begin + kStep < args.expanded) {
        fetch(step + 1);
        wait_copies<1>();
      } else {
        wait_copies<0>();
      }
      __syncwarp();
    }
    const uint32_t new_here = new_lists[begin / 32] >> begin % 32;
#pragma unroll
    for (uint32_t i = 0; i < kTurn; ++i) {
#pragma unroll
      for (uint32_t first = 0; first < kRead; first += 32) {
        const uint32_t entry = shared.entries[step % 2][begin % kStep + i][first + lane];
        offer(list, offered, entry | 1, entry != kNone && ((new_here >> i | entry) & 1) != 0);
      }
    }
  }

  /// The list as the last round left it.
  __device__ void load(List& list, const OfferedFilter& offered) const {
    const uint32_t* distances = args.lists.distances + uint64_t{place} * args.lists.length;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t entry = near[32 * r + lane];
      if (entry == kNone) continue;
      list.take(r, distances[32 * r + lane], entry & ~1u);
      offered.add(OfferedFilter::place_of(entry >> 1));
    }
    list.worst = __shfl_sync(~0u, list.keys[kRegisters - 1], 31);
    __syncwarp();
  }
};

/// A list of any length by row number. It waits for memory.
struct WriteRow {
  static constexpr uint32_t kBlocks = 6;
  static constexpr uint32_t kRegisters = kLongestList / 32;
  struct Shared {};
  const Args& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t registers = args.lists.length / 32;  // that the list takes

  __device__ void run() {
    const uint32_t place = warp_place(args);
    if (place >= args.end) return;
    uint64_t keys[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      keys[r] = RowKey::kNone;
      if (r >= registers) continue;
      const uint64_t at = uint64_t{place} * args.lists.length + 32 * r + lane;
      const uint32_t entry = args.lists.near[at];
      if (entry != kNone) keys[r] = uint64_t{args.lists.distances[at]} << 32 | args.map.members[entry >> 1];
    }
    // Distances ascend already; rows at equal ones change places with their neighbours until all do.
    bool changed = true;
    while (changed) {
      changed = exchange_even(keys);
      changed |= exchange_odd(keys);
      changed = __any_sync(~0u, changed);
    }
    const uint64_t to = uint64_t{args.map.members[place]} * args.k;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t i = 32 * r + lane;
      if (i >= args.k) break;
      args.neighbors[to + i] = static_cast<uint32_t>(keys[r]);
      if (args.distances != nullptr) args.distances[to + i] = static_cast<uint32_t>(keys[r] >> 32);
    }
  }

  /// Lanes 2 i and 2 i + 1.
  __device__ bool exchange_even(uint64_t (&keys)[kRegisters]) const {
    bool changed = false;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (r >= registers) break;
      const uint64_t other = __shfl_xor_sync(~0u, keys[r], 1);
      if (lane % 2 == 0 ? other < keys[r] : keys[r] < other) {
        keys[r] = other;
        changed = true;
      }
    }
    return changed;
  }

  /// Lanes 2 i + 1 and 2 i + 2, the latter of lane 31 being lane 0 of the next register.
  __device__ bool exchange_odd(uint64_t (&keys)[kRegisters]) const {
    bool changed = false;
    uint64_t others[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (r >= registers) break;
      const uint64_t above = r + 1 < kRegisters ? keys[r + 1] : RowKey::kNone;
      const uint64_t below = r > 0 ? keys[r - 1] : 0;
      const uint64_t given = lane == 0 ? above : lane == 31 ? below : keys[r];
      others[r] = __shfl_sync(~0u, given, (lane % 2 == 0 ? lane + 31 : lane + 1) % 32);
    }
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (r >= registers) break;
      if (lane % 2 == 0 ? keys[r] < others[r] : others[r] < keys[r]) {
        keys[r] = others[r];
        changed = true;
      }
    }
    return changed;
  }
};

template <class Step>
__global__ void __launch_bounds__(kThreads, Step::kBlocks) row_kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <class Step>
void launch_rows(const char* name, uint32_t rows, const Args& args, const Stream& stream) {
  launch(name, row_kernel<Step>, (rows + kWarps - 1) / kWarps, kThreads, stream, args);
}

/// The variant of RefineRow for a length of lists and how rows are compared.
template <Form kForm>
void launch_refine(uint32_t rows, const Args& args, const Stream& stream) {
  if (args.lists.length == kShortList)
    return launch_rows<RefineRow<kShortList / 32, kForm>>("refine_row", rows, args, stream);
  if (args.lists.length == kLongList)
    return launch_rows<RefineRow<kLongList / 32, kForm>>("refine_row", rows, args, stream);
  constexpr Form kAnyWidth = kForm == Form::kNarrow ? Form::kBytes : kForm;
  launch_rows<RefineRow<kLongestList / 32, kAnyWidth>>("refine_row", rows, args, stream);
}

}  // namespace

void keep_nearest(const CellsView& map, const Candidates& candidates, const PlaceLists& lists,
                  bool as_entries, const Stream& stream) {
  Args args = {};
  args.map = map;
  args.candidates = candidates;
  args.as_entries = as_entries;
  args.lists = lists;
  if (lists.length == kShortList && candidates.probes <= 64)
    launch_rows<KeepNearest<kShortList / 32, 64>>("keep_nearest", candidates.rows, args, stream);
  else if (lists.length == kShortList)
    launch_rows<KeepNearest<kShortList / 32, kProbesMax>>("keep_nearest", candidates.rows, args, stream);
  else if (lists.length == kLongList)
    launch_rows<KeepNearest<kLongList / 32, kProbesMax>>("keep_nearest", candidates.rows, args, stream);
  else
    launch_rows<KeepNearest<kLongestList / 32, kProbesMax>>("keep_nearest", candidates.rows, args, stream);
}

void refine_lists(const CellsView& map, const PlaceLists& lists, const PlaceLists& next,
                  const CellsEffort& effort, bool measured, uint32_t* reverse, const Stream& stream,
                  const Execution& execution) {
  const uint32_t rows = map.codes.rows;
  Args args = {};
  args.map = map;
  args.lists = lists;
  args.next = next;
  args.expanded = std::min(effort.expanded, kExpandedMax);
  args.measured = measured;
  args.reverse = reverse;
  args.reverse_places = std::min(effort.reverse, kOffered);
  args.reversed = std::min(effort.reversed, lists.length);
  fill(reverse, 0xff, uint64_t{rows} * effort.reverse * sizeof(uint32_t), stream, "clearing reverse lists");
  launch_items<ListReverse>("list_reverse", uint64_t{rows} * args.reversed, args, stream);
  const uint64_t step = std::max<uint64_t>(kLaunchBytes / map.exact.stride, 1);
  for (uint64_t first = 0; first < rows; first += step) {
    execution.check();
    args.first = static_cast<uint32_t>(first);
    args.end = static_cast<uint32_t>(std::min<uint64_t>(rows, first + step));
    const uint32_t launched = args.end - args.first;
    if (map.exact.wide())
      launch_refine<Form::kFloats>(launched, args, stream);
    else if (map.exact.stride == kNarrowBytes)
      launch_refine<Form::kNarrow>(launched, args, stream);
    else
      launch_refine<Form::kBytes>(launched, args, stream);
    if (waits_between(map.codes)) stream.wait();
    execution.advance(static_cast<double>(args.end) / rows);
  }
}

void write_lists(const CellsView& map, const PlaceLists& lists, uint32_t k, uint32_t* neighbors,
                 uint32_t* distances, const Stream& stream) {
  Args args = {};
  args.map = map;
  args.lists = lists;
  args.k = k;
  args.neighbors = neighbors;
  args.distances = distances;
  args.end = map.codes.rows;
  launch_rows<WriteRow>("write_row", args.end, args, stream);
}

}  // namespace gannet::cuda
