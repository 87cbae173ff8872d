// records.h: what was measured, as JSON lines while it happens and as CSV at the end.
//
// One JSON object a line. "record" says what it is:
//
//   run      once: machine, compiler, commit, command, date, data
//   build    one index: algo_name, index_name, time, threads, cpu_time, index_size, ...
//   search   one point: algo_name, index_name, recall, throughput, latency, k, n_queries, ...
//   spread   one point over all seeds: mean, lowest and highest recall, throughput and latency
//
// The CSV files have the column names of cuvs-bench (algo_name, index_name, recall, throughput,
// latency, ..., "build time", "build threads", "build cpu_time", "build GPU"), so its plots and ours
// read either; columns that it lacks follow. Units: seconds, bytes, queries per second.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

using Record = nlohmann::ordered_json;

class Records {
 public:
  // Files PREFIX.jsonl, PREFIX.build.csv and PREFIX.csv. `run` is the run record, whose entries stand
  // at the end of every CSV row.
  Records(const std::string& prefix, const Record& run);
  // Writes the CSV files, whatever ended the run.
  ~Records();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  // Adds a line and hands it to the system at once, so that a killed run keeps it.
  void add(const Record& record);

  const std::vector<Record>& all() const { return records_; }

 private:
  void write_csv() const;

  std::string prefix_;
  Record run_;
  std::ofstream lines_;
  std::vector<Record> records_;
};

// Machine, compiler, commit, command, date. `commit` empty: asks git about the program's folder.
Record describe_run(const std::string& command, const std::string& commit);

// Over records that differ in nothing but the seed: mean, min and max of what was measured.
Record spread_of(const std::vector<const Record*>& seeds);

// One CSV row; texts with commas or quotes are quoted.
std::string csv_row(const std::vector<std::string>& columns, const Record& record);

}  // namespace bench
