#include "records.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>

#include "ann.h"

namespace bench {

namespace {

const std::vector<std::string> kBuildColumns = {
    "algo_name",        "index_name",         "time",           "threads",    "cpu_time", "GPU", "index_size",
    "peak_host_memory", "peak_device_memory", "calibrate_time", "first_call", "seed"};
const std::vector<std::string> kSearchColumns = {"algo_name",
                                                 "index_name",
                                                 "recall",
                                                 "throughput",
                                                 "latency",
                                                 "end_to_end",
                                                 "k",
                                                 "n_queries",
                                                 "total_queries",
                                                 "threads",
                                                 "cpu_time",
                                                 "recall_by_distance",
                                                 "latency_p50",
                                                 "latency_p95",
                                                 "latency_p99",
                                                 "event_p50",
                                                 "queued_throughput",
                                                 "first_call",
                                                 "batch",
                                                 "mode",
                                                 "procedure",
                                                 "warps_per_query",
                                                 "buffers",
                                                 "beam",
                                                 "asked_recall",
                                                 "search_label",
                                                 "distances_per_query",
                                                 "expansions_per_query",
                                                 "seed",
                                                 "peak_host_memory",
                                                 "device_memory",
                                                 "index_size",
                                                 "build time",
                                                 "build threads",
                                                 "build cpu_time",
                                                 "build GPU"};
const std::vector<std::string> kRunColumns = {"data",    "rows",   "dim",     "element", "metric",
                                              "device",  "gpu",    "machine", "cores",   "compiler",
                                              "version", "commit", "date",    "command"};

std::string output_of(const std::string& command) {
  std::string out;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 256> buffer;
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get())) out += buffer.data();
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// The path in single quotes of the shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char letter : text) out += letter == '\'' ? "'\\''" : std::string(1, letter);
  return out + "'";
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  utsname names{};
  uname(&names);
  return names.machine;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::string csv_text(const Record& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, "\"");
  return '"' + text + '"';
}

void write_table(const std::string& path, std::vector<std::string> columns, const Record& run,
                 const std::vector<Record>& records, const std::string& kind) {
  columns.insert(columns.end(), kRunColumns.begin(), kRunColumns.end());
  std::ofstream file(path);
  for (size_t i = 0; i < columns.size(); ++i) file << (i == 0 ? "" : ",") << columns[i];
  file << '\n';
  for (const Record& record : records) {
    if (record.value("record", "") != kind) continue;
    Record row = run;
    row.update(record);
    file << csv_row(columns, row) << '\n';
  }
}

}  // namespace

Records::Records(const std::string& prefix, const Record& run) : prefix_(prefix), run_(run) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  lines_.open(prefix + ".jsonl");
  if (!lines_) throw std::runtime_error(prefix + ".jsonl: cannot be written");
  add(run);
}

Records::~Records() {
  try {
    write_csv();
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s.csv: %s\n", prefix_.c_str(), fault.what());
  }
}

void Records::add(const Record& record) {
  records_.push_back(record);
  lines_ << record.dump() << '\n' << std::flush;
  if (!lines_) throw std::runtime_error(prefix_ + ".jsonl: cannot be written");
}

void Records::write_csv() const {
  write_table(prefix_ + ".build.csv", kBuildColumns, run_, records_, "build");
  write_table(prefix_ + ".csv", kSearchColumns, run_, records_, "search");
}

Record describe_run(const std::string& command, const std::string& commit) {
  std::string known = commit;
  if (known.empty()) {
    std::error_code ignored;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    known = output_of("git -C " + quoted(folder) + " describe --always --dirty 2> /dev/null");
  }
  std::ifstream load_file("/proc/loadavg");
  double load = 0;
  load_file >> load;
  Record out;
  out["record"] = "run";
  out["date"] = utc_now();
  out["command"] = command;
  out["commit"] = known.empty() ? "unknown" : known;
  out["version"] = ann_version();
  out["compiler"] = ann_build_info();
  out["machine"] = processor_name();
  out["cores"] = std::thread::hardware_concurrency();
  out["memory"] =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  out["load_at_start"] = load;  // above 0: the machine has other work
  return out;
}

Record spread_of(const std::vector<const Record*>& seeds) {
  Record out = *seeds.front();
  out["record"] = "spread";
  out["seeds"] = seeds.size();
  out.erase("seed");
  for (const char* name : {"recall", "recall_by_distance", "throughput", "latency", "latency_p50",
                           "latency_p95", "latency_p99", "build time"}) {
    double sum = 0;
    double low = (*seeds.front())[name];
    double high = low;
    for (const Record* record : seeds) {
      const double value = (*record)[name];
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    out[name] = sum / static_cast<double>(seeds.size());
    out[std::string(name) + "_min"] = low;
    out[std::string(name) + "_max"] = high;
  }
  return out;
}

std::string csv_row(const std::vector<std::string>& columns, const Record& record) {
  std::string out;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) out += ',';
    const auto found = record.find(columns[i]);
    if (found != record.end()) out += csv_text(*found);
  }
  return out;
}

}  // namespace bench
