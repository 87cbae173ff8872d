// command_line.h: what the programs here add to CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "names.h"

// Takes one of the names and nothing else. CLI11's own CheckedTransformer would take the numbers
// behind them too, and its help would list both.
inline CLI::Validator one_of(const Names& names) {
  std::string choices;
  for (const auto& [name, value] : names) choices += (choices.empty() ? "" : ", ") + name;
  const auto look_up = [names, choices](std::string& text) {
    const auto found = names.find(text);
    if (found == names.end()) return "\"" + text + "\" is not one of " + choices;
    text = std::to_string(found->second);
    return std::string();
  };
  return CLI::Validator(look_up, "");
}
