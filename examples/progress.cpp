#include "progress.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

namespace {

std::atomic<ann_monitor*> monitor_of_signals{nullptr};
static_assert(std::atomic<ann_monitor*>::is_always_lock_free);
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) {
  interrupted = true;
  ann_monitor_cancel(monitor_of_signals);
}

}  // namespace

CancelOnInterrupt::CancelOnInterrupt(ann_monitor* monitor) {
  monitor_of_signals = monitor;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

CancelOnInterrupt::~CancelOnInterrupt() {
  std::signal(SIGINT, SIG_DFL);
  monitor_of_signals = nullptr;  // which ann_monitor_cancel ignores
}

bool CancelOnInterrupt::happened() { return interrupted; }

ProgressDisplay::ProgressDisplay(const ann_monitor* monitor, std::FILE* to)
    : monitor_(monitor), to_(to), terminal_(isatty(fileno(to)) != 0), thread_([this] { run(); }) {}

ProgressDisplay::~ProgressDisplay() {
  done_ = true;
  thread_.join();
  if (terminal_) std::fprintf(to_, "\r\033[K");  // the bar gives way to the result
  std::fflush(to_);
}

void ProgressDisplay::run() {
  using namespace std::chrono_literals;
  uint32_t step_shown = 0;
  while (!done_) {
    ann_progress now = ANN_PROGRESS_INIT;
    if (ann_monitor_progress(monitor_, &now, nullptr) == ANN_OK && now.step > 0) {
      if (terminal_) {
        std::fprintf(to_, "\r\033[K  %s", bar_text(now.fraction, now.phase).c_str());
      } else if (now.step != step_shown) {
        std::fprintf(to_, "  %3.0f %%     %s\n", 100 * now.fraction, now.phase);
        step_shown = now.step;
      }
      std::fflush(to_);
    }
    for (int i = 0; i < 5 && !done_; ++i) std::this_thread::sleep_for(10ms);
  }
}

std::string bar_text(double fraction, const std::string& what) {
  constexpr int width = 32;
  const int full = static_cast<int>(fraction * width);
  char share[16];
  std::snprintf(share, sizeof share, "] %3.0f %%  ", 100 * fraction);
  return "[" + std::string(full, '#') + std::string(width - full, '.') + share + what;
}

std::string with_commas(uint64_t number) {
  std::string out = std::to_string(number);
  for (size_t at = out.size(); at > 3;) out.insert(at -= 3, ",");
  return out;
}

std::string bytes_text(uint64_t bytes) {
  char out[32];
  if (bytes < 1000 * 1000) {
    std::snprintf(out, sizeof out, "%.0f kB", static_cast<double>(bytes) / 1e3);
  } else if (bytes < 1000 * 1000 * 1000) {
    std::snprintf(out, sizeof out, "%.1f MB", static_cast<double>(bytes) / 1e6);
  } else {
    std::snprintf(out, sizeof out, "%.2f GB", static_cast<double>(bytes) / 1e9);
  }
  return out;
}
