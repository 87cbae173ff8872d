// Adjacency, row sets and the workspaces of a placement.

#include <vector>

#include "catch.h"
#include "graph/adjacency.h"
#include "place/workspace.h"
#include "segment/row_set.h"
#include "tune/search_work.h"

using namespace gannet;

namespace {

GraphLayer layer_of(const std::vector<uint32_t>& edges, const std::vector<uint64_t>& offsets, uint32_t rows,
                    uint32_t degree) {
  GraphLayer layer;
  layer.rows = rows;
  layer.degree = degree;
  layer.edges = Array<uint32_t>({}, edges.size());
  std::copy(edges.begin(), edges.end(), layer.edges.begin());
  layer.offsets = Array<uint64_t>({}, offsets.size());
  std::copy(offsets.begin(), offsets.end(), layer.offsets.begin());
  return layer;
}

std::vector<uint32_t> listed(const AdjacencyRow& row) { return {row.begin(), row.end()}; }

struct Room final : Workspace {
  explicit Room(uint64_t size) : size(size) {}
  uint64_t bytes() const override { return size; }
  uint64_t size;
};
struct OtherRoom final : Workspace {
  uint64_t bytes() const override { return 7; }
};

}  // namespace

TEST_CASE("rows of an adjacency are fixed or variable, and prefixes cut them") {
  const GraphLayer fixed = layer_of({1, 2, kNoRow, 0, kNoRow, kNoRow}, {}, 2, 3);
  REQUIRE(fixed.is_fixed());
  REQUIRE(listed(fixed.row(0)) == std::vector<uint32_t>{1, 2, kNoRow});
  REQUIRE(fixed.adjacency().fixed_row(1)[0] == 0);

  GraphLayer variable = layer_of({1, 2, 0, 3, 4, 1}, {0, 2, 2, 6}, 3, 4);
  REQUIRE_FALSE(variable.is_fixed());
  REQUIRE(listed(variable.row(0)) == std::vector<uint32_t>{1, 2});
  REQUIRE(listed(variable.row(1)).empty());
  REQUIRE(listed(variable.row(2)) == std::vector<uint32_t>{0, 3, 4, 1});

  variable.levels = 2;
  variable.prefixes = Array<uint16_t>({}, 6);
  const uint16_t lengths[] = {1, 2, 0, 0, 2, 3};
  std::copy(lengths, lengths + 6, variable.prefixes.begin());
  REQUIRE(listed(variable.adjacency().row(2, 0)) == std::vector<uint32_t>{0, 3});
  REQUIRE(listed(variable.adjacency().row(2, 1)) == std::vector<uint32_t>{0, 3, 4});
  REQUIRE(listed(variable.adjacency().row(2, 2)) == std::vector<uint32_t>{0, 3, 4, 1});
  REQUIRE(listed(fixed.adjacency().row(0, 0)) == std::vector<uint32_t>{1, 2, kNoRow});
}

TEST_CASE("a table of edges writes the rows that an adjacency reads") {
  GraphLayer layer;
  layer.rows = 3;
  layer.degree = 2;
  layer.make_fixed({});
  layer.edges.fill(kNoRow);
  layer.table().edge(2, 1) = 5;
  layer.table().row(1)[0] = 4;
  REQUIRE(listed(layer.row(2)) == std::vector<uint32_t>{kNoRow, 5});
  REQUIRE(listed(layer.row(1)) == std::vector<uint32_t>{4, kNoRow});
  REQUIRE(layer.table().places() == 6);
}

TEST_CASE("a row set holds the rows that were inserted, and no view holds none") {
  RowSet set({}, 70);
  set.insert(0);
  set.insert(33);
  set.insert(69);
  set.insert(33);
  REQUIRE(set.count() == 3);
  for (uint32_t row = 0; row < 70; ++row) REQUIRE(set.holds(row) == (row == 0 || row == 33 || row == 69));
  REQUIRE(RowSetView{}.empty());
  REQUIRE_FALSE(RowSetView{}.holds(3));
  const Admission admission = {set.view(), {}, 5};
  REQUIRE_FALSE(admission.answers(33));
  REQUIRE(admission.walks(33));  // walked through
  REQUIRE(admission.answers(5));
  REQUIRE_FALSE(admission.walks(5));
}

TEST_CASE("a pool gives back workspaces of the type that is asked for, the best first") {
  WorkspacePool pool;
  REQUIRE(pool.take<Room>() == nullptr);
  pool.give_back(std::make_unique<Room>(10));
  pool.give_back(std::make_unique<OtherRoom>());
  pool.give_back(std::make_unique<Room>(30));
  pool.give_back(std::make_unique<Room>(20));
  REQUIRE(pool.bytes() == 67);
  const auto smaller = [](const Room& a, const Room& b) { return a.size < b.size; };
  REQUIRE(pool.take<Room>(smaller)->size == 10);
  REQUIRE(pool.take<Room>()->size == 20);  // the last one
  REQUIRE(pool.take<Room>(smaller)->size == 30);
  REQUIRE(pool.take<Room>() == nullptr);
  {
    const WorkspaceLease<OtherRoom> lease(pool, [] { return std::make_unique<OtherRoom>(); });
    REQUIRE(pool.bytes() == 0);
  }
  REQUIRE(pool.bytes() == 7);
}
