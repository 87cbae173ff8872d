// progress.h: Ctrl-C and progress bars for programs over ann.h, and numbers as people read them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "ann.h"

// While it lives, the first Ctrl-C asks the library to stop, which is allowed in a signal handler; the
// second one ends the program as usual. There is one at a time.
class CancelOnInterrupt {
 public:
  explicit CancelOnInterrupt(ann_monitor* monitor);
  ~CancelOnInterrupt();
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;

  // Whether Ctrl-C was pressed.
  static bool happened();
};

// Shows how far a call is, from a thread of its own, until it goes out of scope: a bar on a
// terminal, else a line for each phase.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(const ann_monitor* monitor, std::FILE* to = stdout);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

 private:
  void run();

  const ann_monitor* monitor_;
  std::FILE* to_;
  const bool terminal_;
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: it uses the others
};

// A bar as text: "[####....]  50 %  what".
std::string bar_text(double fraction, const std::string& what);

// 12345678 as "12,345,678".
std::string with_commas(uint64_t number);

// 25600000 as "25.6 MB".
std::string bytes_text(uint64_t bytes);
