// Edges to rows that short walks miss.
//
// A graph in which every row is reachable still has rows that walks do not find: islands of a few rows, whose lists end
// within the island or just beyond, and to which only rows lead that are as far as others. Where these are few the
// graph gets no long edges (index/reach.h), and what is lost is lost at any length of a walk: of 110,000 frames of sound
// beams of 64 and 1,000 found .9964 and .9977 of ten neighbours, for queries in nine islands of about fifty rows found
// none, and .999 took a comparison of all rows.
//
//   probe     short walks search for one row in 32; one misses a row if it comes to no row with the code of it
//   attach    the nearest of four rows that the walk found gets an edge to the row that it missed, in place of one that can
//             be spared (graph/spare_edge.h), or the next nearest that has such a place: where walks for it end, they go
//             on. A row gives one a round, so that one row of an island serves for the others, and of several those that
//             are still missed
//   again     missed rows are searched for, and attached, up to three times
//   further   where one row in 50 was missed, as many other rows follow, up to one row in 8
//
// An island is found where one of its rows is probed: one of 32 rows is with two chances in three, one of 96 with
// nineteen in twenty. Of a device's graph by cells, which differs from the CPU's, its own walks probe: they start nearer
// and miss fewer. Other graphs are probed by walks of the CPU, which compare what searches there do: where the index is
// built on the CPU a projection, or halves of codes (dataset/codes.h), so that some rows are missed there and not in the
// same graph from a device. Of 12,000 rows of 512 columns and rank 40, whose walks go by a projection, 2 edges differ, or
// 23 with 16 a row.
//
// Recall of ten by best-first walks of 16, 64 and 200 rows on the CPU, degree 48, before and after:
//
//   sound 110,000 x 120           .9898 .9964 .9970    .9926 .9984 .9985
//   word counts 60,000 x 256      .794  .929  .981     .832  .951  .989
//   word vectors 95,000 x 100     .9440 .9873 .9969    .9475 .9885 .9969
//   glyphs 100,000 x 784          .9412 .9871 .9975    .9424 .9878 .9975
//
// SIFT, patches, words and gist are as before. An edge by product leads where products are large, and a row is not its
// own nearest: graphs by product are left as they are.
//
// Rejected: a start for each missed island, which every walk of the CPU compares; more starts of random rows; probes of
// all rows, 1.9 times the build of sound for .0003 at the shortest beam; edges in place of the last one, whatever it is,
// with a repair behind: a twentieth of the build, and rows that are missed together displace each other.
//
// Cost, n rows: n / 32 walks of 16 rows, .01 to .02 of a build by a CPU, n / 8 where many are missed; a walk or two for
// each missed row, and d^2 comparisons of numbers for each edge, by one thread.
#pragma once

#include "base/execution.h"
#include "place/placed_shape.h"
#include "segment/segment.h"

namespace gannet {

class DevicePlacement;

/// Gives a graph of fixed rows by L2 or cosine edges to rows that walks of the CPU miss. Every row that was reached
/// still is, and the graph does not depend on threads.
void attach_missed_rows(Segment& segment, const Execution& execution);

/// The same of a graph that a placement has too, with `walks_there` by walks of its device. Nothing where the device has
/// no memory for that. Errors: ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE.
void attach_missed_rows(Segment& segment, DevicePlacement& placement, bool walks_there,
                        const Execution& execution);

/// Device memory that this takes at most, beside the placement.
uint64_t attaching_device_bytes(const PlacedShape& shape);

}  // namespace gannet
