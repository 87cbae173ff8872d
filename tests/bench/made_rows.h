// made_rows.h: sets of vectors made from a seed.
//
//   clusters    Gaussian clusters, each of a given intrinsic dimension in a space of more
//   uniform     evenly in the unit cube
//   duplicates  rows of a few distinct vectors, some of them very often
//   norms       for inner products: directions as in clusters, lengths from 0.1 to 10
//   islands     balls about centres, of which a row has `spread` of the centres' deviation: 0.3 leaves them
//               apart, 1 lets them touch; equally many rows each
//   tree        islands in groups of `clusters`, these in groups of as many, and so on, down to islands of 15 rows and
//               more; what divides a group is `spread` times as far apart as groups are
//   copies      near copies of a few rows as in clusters, `spread` of whose deviation they lie away
//   echoes      a few rows as in clusters, some of them very often: half are exact copies, half lie `spread` away
//   densities   a normal ball, and a share of the rows within `spread` of its deviation about one point
//   scaled      a normal ball; for inner products with queries of 0.01 to 30 times the rows' lengths
//   contrast    as in clusters, each row times a factor of a heavy tail, 1 to 200, and a little noise on top
//   outlier_column, outlier_row   as in clusters, a column 1,000 times as wide; one row 10,000 times as far
//   offset      as in clusters, far from the origin
//   shells      directions evenly about the origin, at lengths of 1, 3, 10, 30 or 100
//   radii       directions evenly about the origin, at lengths of about exp(2 N(0, 1))
//   decades     as in one cluster about the origin, whatever number is asked for, each row times a factor of about
//               0.01 to 100, all decades alike
//   scales      normal balls about centres, each .01, .03, .1, .3 or 1 times as wide
//   one_vector  as in clusters, but for half of the rows, which are one vector
//   one_hot     one column of 1 and noise on all
//   ones        five columns of 1, the others 0: few distances, and many rows at each
//   corners     the signs of rows as in clusters
//   relu        their positive parts, less 1, as a layer of a neural network gives them
//   grown       a real set made larger: see GrownRows
//
// Queries are further rows of the same law, or, out of distribution, of clusters that share neither
// centres nor directions with the rows. Every row is a function of (seed, row number) alone, so a set
// of any size is made in parts, on any number of threads, and its first rows are those of a smaller
// one. All arithmetic is IEEE's (no sine, no logarithm): equal bytes on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vector_file.h"

namespace bench {

enum class Law {
  kClusters,
  kUniform,
  kDuplicates,
  kNorms,
  kIslands,
  kTree,
  kCopies,
  kEchoes,
  kDensities,
  kScaled,
  kContrast,
  kOutlierColumn,
  kOutlierRow,
  kOffset,
  kOneHot,
  kCorners,
  kShells,
  kScales,
  kOneVector,
  kRelu,
  kRadii,
  kDecades,
  kOnes
};
enum class Part { kRows, kQueries, kForeignQueries };

struct MadeSet {
  Law law = Law::kClusters;
  uint32_t dim = 128;
  uint32_t intrinsic_dim = 16;  // of each cluster; at most dim
  uint32_t clusters = 100;
  double distinct = 0.1;  // duplicates, copies, echoes: distinct vectors as a share of the rows
  double share = 0.2;     // densities: rows that lie close together, as a share
  double spread = 0;      // islands, tree, copies, echoes, densities; 0: 0.3, 0.5, 0.02, 0.0001, 0.001
  uint64_t rows = 0;      // of the whole set
  uint64_t seed = 1;
};

class MadeRows {
 public:
  explicit MadeRows(const MadeSet& set);

  // Writes rows [first, first + count) of a part, as f32, to `out`. Any thread.
  void make(Part part, uint64_t first, uint64_t count, float* out) const;

 private:
  void make_row(Part part, uint64_t row, float* out) const;
  void make_clustered(Part part, uint64_t row, float* out) const;
  void make_near_another(Part part, uint64_t row, float* out) const;
  void make_in_tree(Part part, uint64_t row, float* out) const;
  void change_clustered(Part part, uint64_t row, float* out) const;

  MadeSet set_;
  std::vector<float> centres_;  // [2 * clusters, dim]: of the rows, of the foreign queries
  std::vector<float> bases_;    // [2 * kBases, dim, intrinsic_dim]
};

// A real set grown to any size. The neighbourhood of a real row (the row and its nearest others) is
// taken as a sample of the law around it; a made row is the mean of a neighbourhood plus its spread
// in a random direction within it,
//
//     mean + h * sum_j z_j (x_j - mean) / sqrt(m),   z_j normal, j over the m rows of it,
//
// so it has the local covariance of the real rows. Every neighbourhood is the source of equally many
// made rows. Each of them is the one of several draws that lies farthest from its siblings (rows of
// the same source), because otherwise a row's true neighbours would be its siblings, and a graph
// would find them too easily. `repair` draws again those that may still have too many near siblings.
//
// The cost is linear in the rows made.
class GrownRows {
 public:
  struct Shape {
    uint32_t neighbours = 12;  // m - 1; more raises the intrinsic dimension
    float spread = 1.2f;       // h
    uint64_t seed = 1;
  };

  // `neighbours` is [real.rows, degree], nearest first: the k-NN graph of the real rows.
  GrownRows(const Vectors& real, const std::vector<uint32_t>& neighbours, uint32_t degree,
            const Shape& shape);

  // `count` made rows, of the real rows' element. Row i's source is i % real.rows.
  Vectors make(uint64_t count) const;
  uint64_t source_of(uint64_t row) const { return row % real_.rows; }

  // `count` queries of the same law as the rows, each from a source of its own, spread over the real
  // rows: the real set's queries are not distributed like made rows.
  Vectors queries(uint64_t count) const;

  // Draws rows again, with another spread each round, that are not surely uncrowded. Of the 10 nearest
  // others of an uncrowded row at most 2 share its source: 8 rows of its source's neighbourhood lie
  // nearer than its third-nearest sibling, which settles it whatever the rest of the set is. Returns
  // the rows that the last round drew; 0 says that every row is uncrowded.
  //
  // The proof takes long in many dimensions, and where a set grows many times it fails for rows that are
  // not crowded; redrawing those raises the intrinsic dimension. With `nearest`, which returns the 10
  // nearest others of every made row [rows, 10] as far as a k-NN graph knows them, a row is crowded if more
  // than 2 of these are its siblings.
  using NearestOthers = std::function<std::vector<uint32_t>(const Vectors& made)>;
  uint64_t repair(Vectors& made, int rounds, const NearestOthers& nearest = {}) const;

  static constexpr uint32_t kNearest = 10;

 private:
  struct Neighbourhood {
    uint32_t members;
    std::vector<float> mean;    // [dim]
    std::vector<float> spread;  // [m, dim], rows less the mean; the source's last
  };

  Neighbourhood neighbourhood_of(uint64_t source, uint32_t neighbours) const;
  Vectors empty_family(uint64_t source, uint64_t rows) const;
  void draw(const Neighbourhood& around, uint64_t row, uint32_t attempt, float spread, float* out) const;
  void place(Vectors& family, uint64_t member, const Neighbourhood& around, uint64_t source, uint32_t attempt,
             float spread) const;
  Vectors make_family(uint64_t source, uint64_t rows) const;
  Vectors family_of(const Vectors& made, uint64_t source) const;
  double third_sibling(const Vectors& made, uint64_t source, uint64_t row) const;
  void mark_crowded(const Vectors& made, uint64_t source, std::vector<uint8_t>& wrong) const;
  void mark_crowded(const Vectors& made, const std::vector<uint32_t>& nearest,
                    std::vector<uint8_t>& wrong) const;

  const Vectors& real_;
  const std::vector<uint32_t>& neighbours_;
  uint32_t degree_;
  Shape shape_;
  std::vector<float> floats_;  // the real rows
};

// Values of `element` (f32, f16, i8, u8) as floats, and floats as f32, or rounded to i8 or u8.
std::vector<float> to_floats(const Vectors& vectors);
float value_as_float(const std::byte* values, int32_t element, uint64_t index);
void store_values(const float* values, uint64_t count, int32_t element, std::byte* out);

}  // namespace bench
