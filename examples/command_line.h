// command_line.h: what the programs here add to CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "names.h"

// Takes one of the names, or a deprecated one, which no text lists, and nothing else. CLI11's own
// CheckedTransformer would take the numbers behind them too, and its help would list both.
inline CLI::Validator one_of(const Names& names, const Names& deprecated = {}) {
  std::string choices;
  for (const auto& [name, value] : names) choices += (choices.empty() ? "" : ", ") + name;
  Names all = names;
  all.insert(deprecated.begin(), deprecated.end());
  const auto look_up = [all, choices](std::string& text) {
    const auto found = all.find(text);
    if (found == all.end()) return "\"" + text + "\" is not one of " + choices;
    text = std::to_string(found->second);
    return std::string();
  };
  return CLI::Validator(look_up, "");
}
