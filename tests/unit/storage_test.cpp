// storage: the arithmetic of a file's places, and that sums tell chunks apart.
#include "storage/layout.h"

#include <cstring>
#include <set>
#include <vector>

#include "catch.h"
#include "index/choose.h"
#include "storage/map.h"
#include "storage/storage.h"

using namespace gannet;
using namespace gannet::format;

namespace {

Header header_of(uint64_t rows, uint32_t dim) {
  Header header = {};
  header.rows = rows;
  header.dim = dim;
  header.metric = ANN_METRIC_COSINE;
  header.element = ANN_F32;
  header.graph = kGraphCagra;
  header.degree = 32;
  header.entries = 64;
  header.has_ids = 1;
  header.codes = kCodesBytes;
  header.row_stride = round_up(uint64_t{dim} * 4, 16);
  header.code_stride = round_up(dim, 64);
  return header;
}

}  // namespace

TEST_CASE("sections follow each other without a gap and without touching") {
  for (const uint64_t rows : {uint64_t{1}, uint64_t{1000}, uint64_t{300000}, uint64_t{ANN_ROWS_MAX}}) {
    Header header = header_of(rows, ANN_DIM_MAX);
    header.graph = kGraphTsdg;
    Section table[kTypesMax];
    Calibrated calibrated = {4, kQueriesMax, kDeviceCurvesMax, rows * ANN_DEGREE_MAX, kLevelsMax, kCellsMax};
    calibrated.first_curves = kFirstCurvesMax;
    const uint32_t count = demanded_sections(header, calibrated, table);
    REQUIRE(count == 15);
    const uint64_t tail = place_sections(table, count);
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < count; ++i) {
      CHECK(is_known(table[i].type));
      CHECK((i == 0 || table[i].type > table[i - 1].type));
      CHECK(table[i].offset % kPage == 0);
      CHECK(table[i].sums_offset == kPage + count * sizeof(Section) + chunks * 8);
      chunks += chunks_of(table[i].bytes);
      const uint64_t end = table[i].offset + table[i].bytes;
      const uint64_t next = i + 1 < count ? table[i + 1].offset : tail;
      CHECK(next >= end);
      CHECK(next - end < kPage);
    }
    CHECK(table[0].offset == sections_offset(count, chunks));
    CHECK(table[0].offset >= kPage + count * sizeof(Section) + chunks * 8);
    CHECK(tail < uint64_t{1} << 50);  // the largest index of all stays far from 2^64
  }
}

TEST_CASE("a sum knows its section, its chunk and every byte") {
  std::vector<uint8_t> bytes(5000, 7);
  const uint64_t sum = chunk_sum(kRows, 0, bytes.data(), bytes.size());
  CHECK(sum == chunk_sum(kRows, 0, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kRows, 1, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kCodes, 0, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kRows, 0, bytes.data(), bytes.size() - 1));
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= 1;
    CHECK(sum != chunk_sum(kRows, 0, bytes.data(), bytes.size()));
    bytes[at] ^= 1;
  }
}

TEST_CASE("known sums: the format does not change with the hash library") {
  CHECK(sum("", 0) == 0x2d06800538d394c2);  // XXH3_64bits of nothing, seed 0
  const Header header = header_of(10, 8);
  Header other = header;
  uint8_t first[16], second[16];
  content_id(header, nullptr, first);
  other.writer = 77;  // who wrote it is no part of the content
  content_id(other, nullptr, second);
  CHECK(std::memcmp(first, second, 16) == 0);
  other.seed = 5;
  content_id(other, nullptr, second);
  CHECK(std::memcmp(first, second, 16) != 0);
}

TEST_CASE("values that section 4 of the specification forbids") {
  const uint64_t ids[] = {30, 10, 20};
  const uint32_t right[] = {1, 2, 0}, wrong[] = {1, 0, 2}, repeated[] = {1, 1, 2};
  CHECK_NOTHROW(check_ids(ids, right, 3, Execution{}));
  CHECK_THROWS_AS(check_ids(ids, wrong, 3, Execution{}), Error);
  CHECK_THROWS_AS(check_ids(ids, repeated, 3, Execution{}), Error);
  const uint32_t ascending[] = {1, 5, 9}, twice[] = {1, 5, 5};
  CHECK_NOTHROW(check_starts(Array<uint32_t>::over(ascending, 3), "entry points"));
  CHECK_THROWS_AS(check_starts(Array<uint32_t>::over(twice, 3), "entry points"), Error);
  Curve curve = {};
  curve.k = 10;
  curve.count = 2;
  curve.points[0] = {10, 0, 0.5};
  curve.points[1] = {20, 0, 0.5};
  CHECK(read_calibration(&curve, 1, Header{}).curves().count() == 1);
  const auto refused = [&](auto change) {
    Curve changed = curve;
    change(changed);
    CHECK_THROWS_AS(read_calibration(&changed, 1, Header{}), Error);
  };
  refused([](Curve& c) { c.k = 0; });
  refused([](Curve& c) { c.count = 0; });
  refused([](Curve& c) { c.count = 25; });
  refused([](Curve& c) { c.points[1].beam = 10; });
  refused([](Curve& c) { c.points[1].recall = 0.4; });
  refused([](Curve& c) { c.points[1].recall = 1.5; });
  refused([](Curve& c) { c.points[1].recall = NAN; });
  refused([](Curve& c) { c.points[2].beam = 1; });
  refused([](Curve& c) { c.points[0].zero = 1; });
}

TEST_CASE("curves by slack are checked point by point") {
  SlackCurve curve = {};
  curve.k = 10;
  curve.count = 2;
  curve.points[0] = {0, 0.5, 20, 8};
  curve.points[1] = {0.05, 0.75, 30, 16};
  const KnobCurves read = read_slack_curves(&curve, 1);
  CHECK(read.count() == 1);
  CHECK(read.knob(10, 0.75) == 0.05);
  CHECK(read.cost(&KnobPoint::expansions, 10, 0.025) == 25);
  CHECK(read.cost(&KnobPoint::bound, 100, 0.025) == 12);
  const SlackCurve twice[] = {curve, curve};
  CHECK_THROWS_AS(read_slack_curves(twice, 2), Error);
  const auto refused = [&](auto change) {
    SlackCurve changed = curve;
    change(changed);
    CHECK_THROWS_AS(read_slack_curves(&changed, 1), Error);
  };
  refused([](SlackCurve& c) { c.k = 0; });
  refused([](SlackCurve& c) { c.count = 0; });
  refused([](SlackCurve& c) { c.count = 25; });
  refused([](SlackCurve& c) { c.count = UINT32_MAX; });
  refused([](SlackCurve& c) { c.points[0].slack = -0.01; });
  refused([](SlackCurve& c) { c.points[1].slack = 0; });
  refused([](SlackCurve& c) { c.points[1].slack = 3.5; });
  refused([](SlackCurve& c) { c.points[1].slack = NAN; });
  refused([](SlackCurve& c) { c.points[1].recall = 0.4; });
  refused([](SlackCurve& c) { c.points[1].recall = 1.5; });
  refused([](SlackCurve& c) { c.points[1].recall = NAN; });
  refused([](SlackCurve& c) { c.points[0].expansions = -1; });
  refused([](SlackCurve& c) { c.points[0].expansions = INFINITY; });
  refused([](SlackCurve& c) { c.points[0].expansions = NAN; });
  refused([](SlackCurve& c) { c.points[0].beam = 0; });
  refused([](SlackCurve& c) { c.points[0].beam = 65537; });
  refused([](SlackCurve& c) { c.points[0].beam = NAN; });
  refused([](SlackCurve& c) { c.points[2].expansions = 1; });
  refused([](SlackCurve& c) { c.points[2].beam = 1; });
}

namespace {

/// An index of 100 rows that devices of two classes have calibrated; where `has_first`, one of them with curves of first
/// answers, but not by blocks of 16 warps.
std::unique_ptr<const PlacedSegment> make_measured(bool has_first) {
  std::vector<float> values(100 * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 1000);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 4;
  shape.metric = ANN_METRIC_L2;
  const MatrixView rows{reinterpret_cast<const uint8_t*>(values.data()), 100, 4, ANN_F32, 16};
  auto built = build(shape, rows, nullptr, plan_build(ANN_BUILD_PARAMS_INIT, shape, 100, 1), nullptr, {});
  for (const uint32_t capability : {90u, 80u}) {
    MeasuredDevice measured{{capability, 132, 1280}, {}};
    for (uint32_t place = 0; place <= DeviceCalibration::kTables; ++place) {
      DeviceCalibration::Table& table = measured.two_lists.table(place);
      const bool resident = place == DeviceCalibration::kTables;
      table.query_warps = {resident ? 1 : DeviceCalibration::kWarps[place], resident};
      for (const uint32_t k : {1u, 10u}) {
        DeviceCalibration::Curve& curve = table.curves[table.count++];
        curve.k = k;
        curve.count = 2;
        curve.points[0] = {0.5, -0.1 + 0.01 * place, 4096, 12.5};
        curve.points[1] = {0.9, 0.1 * k, 4096, 30 + 0.125 * capability};
      }
      if (!has_first || capability != 90 || place == 2) continue;
      table.first.k = DeviceCalibration::kFirstAnswers;
      table.first.count = 2;
      table.first.points[0] = {0.5, -0.2 + 0.01 * place, 4096, 11.5};
      table.first.points[1] = {0.99, 0.3, 4096, 40};
    }
    built->devices.remember(measured.device, measured.two_lists);
  }
  return built;
}

std::vector<uint8_t> bytes_of(const PlacedSegment& built) {
  std::vector<uint8_t> bytes;
  const StreamSink sink{[](void* user, const void* data, uint64_t count) -> int64_t {
                          auto& out = *static_cast<std::vector<uint8_t>*>(user);
                          const auto* from = static_cast<const uint8_t*>(data);
                          out.insert(out.end(), from, from + count);
                          return static_cast<int64_t>(count);
                        },
                        &bytes};
  save_stream(built, sink, {});
  return bytes;
}

}  // namespace

TEST_CASE("what devices have measured is in the file, class by class, and comes back") {
  const auto built = make_measured(false);
  const std::vector<uint8_t> bytes = bytes_of(*built);
  for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY, ANN_OPEN_TRUSTED}) {
    const auto opened = open_memory(bytes.data(), bytes.size(), {mode, {}}, {});
    const auto measured = opened->devices.measured();
    REQUIRE(measured.size() == 2);
    CHECK(measured[0]->device.capability == 80);
    for (const auto& known : measured) {
      const MeasuredDevice& device = *known;
      for (uint32_t place = 0; place <= DeviceCalibration::kTables; ++place)
        for (const uint32_t k : {1u, 10u})
          for (const float recall : {0.5f, 0.8f, 0.9f}) {
            const DeviceCalibration::QueryWarps query_warps = device.two_lists.table(place).query_warps;
            const auto wanted =
                built->devices.measured()[device.device.capability == 90 ? 1 : 0]->two_lists.find(query_warps,
                                                                                                  k, recall);
            const auto found = device.two_lists.find(query_warps, k, recall);
            REQUIRE(found);
            CHECK(found->knob == wanted->knob);
            CHECK(found->expansions_max == wanted->expansions_max);
          }
      CHECK_FALSE(device.two_lists.find({1, false}, 10, 0.95f));
    }
    CHECK(bytes_of(*opened) == bytes);
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  CHECK(header.minor == kMinorWithCodeOrder);  // the newest of what is in it
}

TEST_CASE("curves of the first answers of devices' walks are in the file and come back") {
  const auto built = make_measured(true);
  const std::vector<uint8_t> bytes = bytes_of(*built);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  CHECK(header.minor == kMinorWithFirstCurves);
  for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY, ANN_OPEN_TRUSTED}) {
    const auto opened = open_memory(bytes.data(), bytes.size(), {mode, {}}, {});
    const auto measured = opened->devices.measured();
    REQUIRE(measured.size() == 2);
    for (uint32_t place = 0; place <= DeviceCalibration::kTables; ++place) {
      CHECK(measured[0]->two_lists.table(place).first.count == 0);
      const DeviceCalibration::Table& table = measured[1]->two_lists.table(place);
      CHECK(table.count == 2);
      REQUIRE(table.first.count == (place == 2 ? 0 : 2));
      const DeviceCalibration::Curve wanted = built->devices.measured()[1]->two_lists.table(place).first;
      CHECK(table.first.k == wanted.k);
      CHECK(std::memcmp(table.first.points, wanted.points, sizeof wanted.points) == 0);
    }
    CHECK(bytes_of(*opened) == bytes);
  }
  CHECK(bytes_of(*make_measured(false)).size() < bytes.size());
}

TEST_CASE("where lists and slacks start is in the file, from all entry points if it does not say so") {
  // Fifty copies of 160 rows: a graph with more entry points than others.
  constexpr uint32_t kRows = 8000;
  constexpr uint32_t kDim = 6;
  std::vector<float> values(kRows * kDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % (160 * kDim) * 7919 % 1009);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  shape.metric = ANN_METRIC_L2;
  const MatrixView rows{reinterpret_cast<const uint8_t*>(values.data()), kRows, kDim, ANN_F32,
                        kDim * sizeof(float)};
  const auto built = build(shape, rows, nullptr, plan_build(ANN_BUILD_PARAMS_INIT, shape, kRows, 2), nullptr,
                           {{}, 2, nullptr});
  const auto starts_from_groups = [](const PlacedSegment& placed) {
    SearchRequest request{ANN_SEARCH_PARAMS_INIT, 0.9f, 1, 10, 10};
    request.params.beam = 20;
    return std::get<BeamPlan>(choose(placed, nullptr, request, {}).plan).from_groups;
  };
  const auto slack_starts_from_groups = [](const PlacedSegment& placed, float recall) {
    SearchRequest request{ANN_SEARCH_PARAMS_INIT, recall, 1, 10, 10};
    request.params.procedure = ANN_SEARCH_SLACK;
    const Choice choice = choose(placed, nullptr, request, {});
    const auto& plan = std::get<TwoListsPlan>(choice.plan);
    REQUIRE((plan.slack <= EntryGroups::kSlackMost || !plan.from_groups));
    return plan.from_groups;
  };
  REQUIRE(starts_from_groups(*built));
  REQUIRE(slack_starts_from_groups(*built, 0.9f));
  REQUIRE_FALSE(slack_starts_from_groups(*built, 1.0f));
  std::vector<uint8_t> bytes = bytes_of(*built);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  CHECK(header.minor == kMinorWithSlackGroups);
  REQUIRE(header.features == (kFeatureEntryGroups | kFeatureSlackGroups));
  for (const uint64_t features : {3, 1, 0}) {
    if (features != 3) {
      header.features = features;
      header.header_sum = header_sum(header);
      const Tail tail = tail_of(header);
      std::memcpy(bytes.data(), &header, sizeof header);
      std::memcpy(bytes.data() + bytes.size() - sizeof tail, &tail, sizeof tail);
    }
    for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY, ANN_OPEN_TRUSTED}) {
      const auto opened = open_memory(bytes.data(), bytes.size(), {mode, {}}, {});
      CHECK(starts_from_groups(*opened) == ((features & kFeatureEntryGroups) != 0));
      CHECK(slack_starts_from_groups(*opened, 0.9f) == ((features & kFeatureSlackGroups) != 0));
      Header again;
      std::memcpy(&again, bytes_of(*opened).data(), sizeof again);
      CHECK(again.features == header.features);
      CHECK(again.minor == (features == 3   ? kMinorWithSlackGroups
                            : features != 0 ? kMinorWithEntryGroups
                                            : kMinorWithSlackCurves));
    }
  }
  // Curves of walks that 1.10 alone made: searches go by beams.
  header.features = kFeatureEntryGroups | kFeatureSlackGroups;
  header.features_to_read = kFeatureSlackSpread;
  header.header_sum = header_sum(header);
  const Tail tail = tail_of(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + bytes.size() - sizeof tail, &tail, sizeof tail);
  const auto opened = open_memory(bytes.data(), bytes.size(), {ANN_OPEN_FULL, {}}, {});
  CHECK(starts_from_groups(*opened));
  CHECK(opened->calibration.known().slack().empty());
  CHECK_FALSE(slack_starts_from_groups(*opened, 0.9f));
  Header again;
  std::memcpy(&again, bytes_of(*opened).data(), sizeof again);
  CHECK(again.minor == kMinorWithEntryGroups);
  CHECK(again.features_to_read == 0);
}

/// Nearly normal: a sum of uniform numbers.
float drawn(uint64_t seed, uint64_t stream, uint64_t number) {
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i)
    sum += static_cast<double>(random_below(2001, seed, stream, number * 4 + i)) / 1000 - 1;
  return static_cast<float>(sum);
}

TEST_CASE(
    "where islands are many more than starts, slacks start at covering heads, and so they do of a file") {
  constexpr uint32_t kRows = 45000;
  constexpr uint32_t kDim = 48;
  constexpr uint32_t kIslands = 1500;
  std::vector<float> values(kRows * kDim);
  for (uint64_t i = 0; i < values.size(); ++i)
    values[i] = drawn(1, 1, i / kDim * 7919 % kIslands * kDim + i % kDim) + 0.5f * drawn(1, 2, i);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  shape.metric = ANN_METRIC_L2;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  const MatrixView rows{reinterpret_cast<const uint8_t*>(values.data()), kRows, kDim, ANN_F32,
                        kDim * sizeof(float)};
  const auto built =
      build(shape, rows, nullptr, plan_build(params, shape, kRows, 2), nullptr, {{}, 2, nullptr});
  const auto search = [&](const PlacedSegment& placed) {
    SearchRequest request{ANN_SEARCH_PARAMS_INIT, 1.0f, 100, 10, 10};
    request.params.procedure = ANN_SEARCH_SLACK;
    const Choice choice = choose(placed, nullptr, request, {});
    CHECK(std::get<TwoListsPlan>(choice.plan).covering.size() > kEntriesMax);
    std::vector<uint64_t> ids(100 * 10);
    std::vector<float> distances(ids.size());
    SearchCounts counts;
    const MatrixView queries{rows.data, 100, kDim, ANN_F32, kDim * sizeof(float)};
    kSlack.run_on_host(placed.host,
                       {queries, {10, ids.data(), distances.data(), nullptr, nullptr}, nullptr, {}},
                       choice.plan, {{}, 1, nullptr}, &counts);
    return std::pair(ids, counts.distances);
  };
  const CoveringWalks* covering = built->calibration.known().covering();
  REQUIRE(covering != nullptr);
  std::set<uint64_t> found;
  for (const uint32_t head : covering->heads) found.insert(uint64_t{head} * 7919 % kIslands);
  CHECK(found.size() >= kIslands - kIslands / 500);
  CHECK_FALSE(built->calibration.known().slack().reaches(10, 0.99));
  CHECK(covering->slack.reaches(10, 0.99));
  const std::vector<uint8_t> bytes = bytes_of(*built);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  CHECK(header.minor == kMinorWithCoveringHeads);
  CHECK(header.features_to_read == 0);
  for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY, ANN_OPEN_TRUSTED}) {
    const auto opened = open_memory(bytes.data(), bytes.size(), {mode, {}}, {});
    CHECK(search(*opened) == search(*built));
    CHECK(bytes_of(*opened) == bytes);
  }
}

TEST_CASE("walks for a hundred answers go by the curve of their first answers where it is there") {
  DeviceCalibration calibration;
  DeviceCalibration::Table& table = calibration.table(1);
  table.query_warps = {8, false};
  table.count = 1;
  table.curves[0].k = 100;
  table.curves[0].count = 2;
  table.curves[0].points[0] = {0.5, 0.1, 4096, 10};
  table.curves[0].points[1] = {0.9, 0.3, 4096, 30};
  const auto slack = [&](uint32_t k, float recall) {
    const auto effort = calibration.find_deep({8, false}, k, recall);
    return effort ? effort->knob : -1;
  };
  // Of an earlier file.
  for (const uint32_t k : {1u, 10u, 30u}) {
    CHECK(slack(k, 0.9f) == 0.3);
    CHECK(slack(k, 0.95f) == -1);
  }
  table.first.k = 10;
  table.first.count = 2;
  table.first.points[0] = {0.5, 0, 4096, 9};
  table.first.points[1] = {0.95, 0.2, 4096, 20};
  CHECK(slack(10, 0.5f) == 0);
  CHECK(slack(10, 0.95f) == 0.2);
  CHECK(slack(10, 0.96f) == -1);
  for (const uint32_t k : {1u, 9u, 11u}) {
    CHECK(slack(k, 0.9f) == 0.3);
    CHECK(slack(k, 0.95f) == -1);
  }
  CHECK(calibration.find({8, false}, 100, 0.9f)->knob == 0.3);
  CHECK_FALSE(calibration.find_deep({16, false}, 10, 0.5f));
  // The ends of curves in doubt of a recall.
  CHECK(calibration.find({8, false}, 100, 0.9009f, 0.001)->knob == 0.3);
  CHECK(calibration.find({8, false}, 100, 0.9009f, 0.001)->recall == 0.9009f);
  CHECK_FALSE(calibration.find({8, false}, 100, 0.9009f));
  CHECK_FALSE(calibration.find({8, false}, 100, 0.9011f, 0.001));
  CHECK(calibration.find_deep({8, false}, 10, 0.9509f, 0.001)->knob == 0.2);
}

TEST_CASE("curves of devices that section 4 of the specification forbids") {
  DeviceCurve curve = {};
  curve.warps = 8;
  curve.k = 10;
  curve.count = 2;
  curve.points[0] = {0.5, 0.1, 4096, 10};
  curve.points[1] = {0.6, 0.2, 4096, 20};
  CHECK(read_device_curves(&curve, 1).size() == 1);
  const auto refused = [&](auto change) {
    DeviceCurve changed = curve;
    change(changed);
    CHECK_THROWS_AS(read_device_curves(&changed, 1), Error);
  };
  refused([](DeviceCurve& c) { c.warps = 2; });
  refused([](DeviceCurve& c) { c.resident = 1; });
  refused([](DeviceCurve& c) { c.k = 0; });
  refused([](DeviceCurve& c) { c.count = 25; });
  refused([](DeviceCurve& c) { c.zero = 1; });
  refused([](DeviceCurve& c) { c.points[1].slack = 0.1; });
  refused([](DeviceCurve& c) { c.points[1].slack = INFINITY; });
  refused([](DeviceCurve& c) { c.points[0].slack = -1; });
  refused([](DeviceCurve& c) { c.points[1].recall = 0.4; });
  refused([](DeviceCurve& c) { c.points[1].recall = NAN; });
  refused([](DeviceCurve& c) { c.points[1].expansions = -1; });
  refused([](DeviceCurve& c) { c.points[1].expansions_max = NAN; });
  refused([](DeviceCurve& c) { c.points[2].recall = 0.1; });
  const DeviceCurve twice[] = {curve, curve};
  CHECK_THROWS_AS(read_device_curves(twice, 2), Error);
}

TEST_CASE("curves of first answers that section 4 of the specification forbids") {
  DeviceCurve curve = {};
  curve.multiprocessors = 132;
  curve.warps = 8;
  curve.k = 10;
  curve.count = 2;
  curve.points[0] = {0.5, 0.1, 4096, 10};
  curve.points[1] = {0.6, 0.2, 4096, 20};
  DeviceCurve hundred = curve;
  hundred.warps = 1;
  hundred.k = 100;
  const auto read = [&](const std::vector<DeviceCurve>& first) {
    std::vector<MeasuredDevice> devices = read_device_curves(&hundred, 1);
    read_first_curves(first.data(), first.size(), &devices);
    return devices;
  };
  CHECK(read({})[0].two_lists.table(1).first.count == 0);
  CHECK(read({curve})[0].two_lists.table(1).first.count == 2);
  DeviceCurve of_warp = curve;
  of_warp.warps = 1;
  DeviceCurve at_once = of_warp;
  at_once.resident = 1;
  CHECK_NOTHROW(read({of_warp, curve, at_once}));
  CHECK_THROWS_AS(read({curve, of_warp}), Error);
  CHECK_THROWS_AS(read({at_once, curve}), Error);
  CHECK_THROWS_AS(read({curve, curve}), Error);
  const auto refused = [&](auto change) {
    DeviceCurve changed = curve;
    change(changed);
    CHECK_THROWS_AS(read({changed}), Error);
  };
  refused([](DeviceCurve& c) { c.capability = 90; });  // a class that has no other curves
  refused([](DeviceCurve& c) { c.block_list_max = 1280; });
  refused([](DeviceCurve& c) { c.warps = 2; });
  refused([](DeviceCurve& c) { c.resident = 1; });
  refused([](DeviceCurve& c) { c.k = 0; });
  refused([](DeviceCurve& c) { c.k = 100; });
  refused([](DeviceCurve& c) { c = {0, 132, 0, 8, 0, 10, 0, 0, {}}; });  // no points
  refused([](DeviceCurve& c) { c.count = 25; });
  refused([](DeviceCurve& c) { c.zero = 1; });
  refused([](DeviceCurve& c) { c.points[1].slack = 0.1; });
  refused([](DeviceCurve& c) { c.points[1].recall = 0.4; });
  refused([](DeviceCurve& c) { c.points[1].recall = NAN; });
  refused([](DeviceCurve& c) { c.points[1].expansions = -1; });
  refused([](DeviceCurve& c) { c.points[2].recall = 0.1; });
}

TEST_CASE("small sets of copies, whose calibration has few queries, are saved and opened again") {
  constexpr uint32_t kDim = 8;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  shape.metric = ANN_METRIC_L2;
  for (const uint32_t distinct : {1u, 2u, 3u}) {
    for (uint32_t count = 5; count <= 100; count += count < 30 ? 1 : 7) {
      CAPTURE(distinct, count);
      std::vector<float> values(size_t{count} * kDim);
      for (uint32_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((i / kDim % distinct + 1) * (i % kDim + 3) % 7);
      const MatrixView rows{reinterpret_cast<const uint8_t*>(values.data()), count, kDim, ANN_F32,
                            kDim * sizeof(float)};
      ann_build_params params = ANN_BUILD_PARAMS_INIT;
      params.calibrate = ANN_ON;
      const auto built =
          build(shape, rows, nullptr, plan_build(params, shape, count, 1), nullptr, {{}, 1, nullptr});
      REQUIRE(built->calibration.known().curves().count() > 0);
      const std::vector<uint8_t> bytes = bytes_of(*built);
      const auto opened = open_memory(bytes.data(), bytes.size(), {ANN_OPEN_FULL, {}}, {});
      REQUIRE(opened->segment.rows() == count);
    }
  }
}
