#include "answers.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "progress.h"

namespace {

uint32_t count_of(const Neighbours& found, uint64_t query) {
  const uint64_t* ids = found.ids.data() + query * found.k;
  return static_cast<uint32_t>(std::find(ids, ids + found.k, ANN_ID_NONE) - ids);
}

// Numbers as a JSON list has them, the first `most` of them.
std::string listed(const std::vector<uint64_t>& numbers, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(numbers.size(), most); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return out;
}

void print_query_json(const Neighbours& found, uint64_t query) {
  std::printf("    [");
  for (uint32_t i = 0; i < count_of(found, query); ++i) {
    const uint64_t at = query * found.k + i;
    // nlohmann's dump writes a float as short as it can be read back, and an infinite one as null.
    std::printf("%s{\"id\": %" PRIu64 ", \"distance\": %s}", i == 0 ? "" : ", ", found.ids[at],
                Json(found.distances[at]).dump().c_str());
  }
  std::printf("]");
}

}  // namespace

void print_json(const Json& answer) { std::printf("%s\n", answer.dump(2).c_str()); }

void print_neighbours_json(const Answer& answer, uint64_t show) {
  const uint64_t shown = std::min(show, answer.found.queries);
  std::printf("{\n");
  for (const auto& [name, value] : answer.figures.items()) {
    std::printf("  %s: %s,\n", Json(name).dump().c_str(), value.dump().c_str());
  }
  std::printf("  \"not_finite\": [%s],\n  \"shown\": %" PRIu64 ",\n  \"neighbours\": [",
              listed(answer.not_finite, answer.not_finite.size()).c_str(), shown);
  for (uint64_t query = 0; query < shown; ++query) {
    std::printf("%s\n", query == 0 ? "" : ",");
    print_query_json(answer.found, query);
  }
  std::printf("%s]\n}\n", shown == 0 ? "" : "\n  ");
}

void print_neighbours(const Answer& answer, uint64_t show) {
  const Neighbours& found = answer.found;
  const uint64_t shown = std::min(show, found.queries);
  for (uint64_t query = 0; query < shown; ++query) {
    std::printf("query %" PRIu64 ":", query);
    if (std::binary_search(answer.not_finite.begin(), answer.not_finite.end(), query)) {
      std::printf("  holds NaN or infinity");
    }
    for (uint32_t i = 0; i < count_of(found, query); ++i) {
      const uint64_t at = query * found.k + i;
      std::printf("  %" PRIu64 " (%.6g)", found.ids[at], static_cast<double>(found.distances[at]));
    }
    std::printf("\n");
  }
  if (0 < shown && shown < found.queries) {
    std::printf("... and %s more (--show, --out)\n", with_commas(found.queries - shown).c_str());
  }
}

bool tell_not_finite(const Answer& answer) {
  if (answer.not_finite.empty()) return false;
  constexpr size_t most = 10;
  std::fprintf(stderr, "gannet: %s of %s queries hold NaN or infinity and have no neighbours: %s%s\n",
               with_commas(answer.not_finite.size()).c_str(), with_commas(answer.found.queries).c_str(),
               listed(answer.not_finite, most).c_str(), answer.not_finite.size() > most ? ", ..." : "");
  return true;
}

std::vector<uint64_t> not_finite(const std::vector<ann_status>& status) {
  std::vector<uint64_t> out;
  for (size_t query = 0; query < status.size(); ++query) {
    if (status[query] != ANN_OK) out.push_back(query);
  }
  return out;
}

double recall_of(const Neighbours& found, const Neighbours& truth) {
  uint64_t hits = 0;
  uint64_t wanted = 0;
  for (uint64_t query = 0; query < found.queries; ++query) {
    const uint64_t* true_ids = truth.ids.data() + query * truth.k;
    const uint32_t exist = std::min(found.k, count_of(truth, query));
    uint64_t right = 0;
    for (uint32_t i = 0; i < count_of(found, query) && exist > 0; ++i) {
      const uint64_t at = query * found.k + i;
      const bool named = std::find(true_ids, true_ids + exist, found.ids[at]) != true_ids + exist;
      const bool as_near =
          !truth.distances.empty() && found.distances[at] <= truth.distances[query * truth.k + exist - 1];
      right += named || as_near;
    }
    hits += std::min<uint64_t>(right, exist);
    wanted += exist;
  }
  return wanted == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(wanted);
}
