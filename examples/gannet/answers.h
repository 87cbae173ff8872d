// answers.h: what the commands answer, for people or as JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "handles.h"

using Json = nlohmann::ordered_json;

// One JSON object on standard output.
void print_json(const Json& answer);

// The answers of a search.
struct Answer {
  Json figures;  // queries, seconds, ...
  Neighbours found;
  std::vector<uint64_t> not_finite;  // queries with NaN or infinity, which have no neighbours
};

// The figures, then "shown" (how many queries follow), "not_finite" and "neighbours" as one JSON object,
// written query by query.
void print_neighbours_json(const Answer& answer, uint64_t show);

// A line for each of the first queries, and how many more there are.
void print_neighbours(const Answer& answer, uint64_t show);

// Tells of queries with NaN or infinity on standard error; whether there were any.
bool tell_not_finite(const Answer& answer);

// The numbers of the queries whose status is not ANN_OK.
std::vector<uint64_t> not_finite(const std::vector<ann_status>& status);

// The share of the true neighbours found; of rows at equal distance any is right, if `truth` has distances.
double recall_of(const Neighbours& found, const Neighbours& truth);
