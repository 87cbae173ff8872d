// names.h: values of ann.h by the names that options and records give them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ann.h"

using Names = std::map<std::string, int32_t>;

inline const Names kMetrics = {
    {"l2", ANN_METRIC_L2}, {"ip", ANN_METRIC_INNER_PRODUCT}, {"cosine", ANN_METRIC_COSINE}};
inline const Names kElements = {{"auto", ANN_ELEMENT_AUTO}, {"f32", ANN_F32}, {"f16", ANN_F16},
                                {"bf16", ANN_BF16},         {"i8", ANN_I8},   {"u8", ANN_U8}};
inline const Names kProcedures = {{"auto", ANN_SEARCH_AUTO},
                                  {"best_first", ANN_SEARCH_BEST_FIRST},
                                  {"exact", ANN_SEARCH_EXACT},
                                  {"cagra", ANN_SEARCH_CAGRA},
                                  {"cagra_single_cta", ANN_SEARCH_CAGRA_SINGLE_CTA},
                                  {"cagra_multi_cta", ANN_SEARCH_CAGRA_MULTI_CTA},
                                  {"two_lists", ANN_SEARCH_TWO_LISTS},
                                  {"ggnn", ANN_SEARCH_GGNN},
                                  {"tsdg", ANN_SEARCH_TSDG},
                                  {"tsdg_small", ANN_SEARCH_TSDG_SMALL},
                                  {"tsdg_large", ANN_SEARCH_TSDG_LARGE},
                                  {"slack", ANN_SEARCH_SLACK}};
// Names of before, which options still take.
inline const Names kDeprecatedProcedures = {
    {"warp", ANN_SEARCH_WARP}, {"block", ANN_SEARCH_BLOCK}, {"wide_block", ANN_SEARCH_WIDE_BLOCK}};
inline const Names kKnnMethods = {{"auto", ANN_KNN_AUTO},
                                  {"cells", ANN_KNN_CELLS},
                                  {"nn_descent", ANN_KNN_NN_DESCENT},
                                  {"exact", ANN_KNN_EXACT}};
inline const Names kGraphs = {{"auto", ANN_GRAPH_AUTO},
                              {"cagra", ANN_GRAPH_CAGRA},
                              {"none", ANN_GRAPH_NONE},
                              {"tsdg", ANN_GRAPH_TSDG},
                              {"ggnn", ANN_GRAPH_GGNN}};

inline const Names kCodes = {{"none", ANN_CODES_NONE},     {"rows", ANN_CODES_ROWS},
                             {"bytes", ANN_CODES_BYTES},   {"floats", ANN_CODES_FLOATS},
                             {"scaled", ANN_CODES_SCALED}, {"projected", ANN_CODES_PROJECTED}};

inline const Names kDetours = {
    {"auto", ANN_DETOURS_AUTO}, {"near", ANN_DETOURS_NEAR}, {"whole", ANN_DETOURS_WHOLE}};
inline const Names kReorderings = {
    {"auto", ANN_REORDER_AUTO}, {"rank", ANN_REORDER_RANK}, {"distance", ANN_REORDER_DISTANCE}};

inline const Names kSwitches = {{"on", ANN_ON}, {"off", ANN_OFF}};
inline const Names kCompares = {
    {"auto", ANN_COMPARE_AUTO}, {"codes", ANN_COMPARE_CODES}, {"stored", ANN_COMPARE_STORED}};

inline std::string name_of(const Names& names, int32_t value) {
  for (const auto& [name, named] : names) {
    if (named == value) return name;
  }
  return "?";
}

// All names, as "a,b,c".
inline std::string names_of(const Names& names) {
  std::string out;
  for (const auto& [name, value] : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

// "auto", "cpu", "cuda" or "cuda:1" as ANN_DEVICE_*. Throws std::invalid_argument.
int32_t device_of(const std::string& text);
