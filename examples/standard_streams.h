// standard_streams.h: standard input and output as files of the command line, and writes that fail.
//
// "-" is a standard stream in NumPy's format, which says what it holds; "fbin:-", "u8bin:-" and so on is
// one in another format. A file that is called so is "./-".
#pragma once

#include <cstdio>
#include <memory>
#include <string>

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Whether a name stands for standard input or output.
bool is_standard_stream(const std::string& path);

// ".npy" for "-", ".fbin" for "fbin:-", and for a file the ending of its name.
std::string ending_of(const std::string& path);

// A name under which standard input can be opened like a file, any number of times: where it is no file, or
// does not stand at its start, it becomes a copy of itself in a temporary file, in TMPDIR, that is gone when
// the program ends. Throws std::runtime_error.
std::string file_of_standard_input();

// Standard output for bytes that are no text. Throws std::runtime_error where it is a terminal.
File open_standard_output();

// Gives descriptors 0, 1 and 2 to /dev/null where the caller has closed them. Else the next file that is
// opened would be standard output, and messages would be written into it.
void keep_standard_descriptors();

// Writes out what is left for standard output. Where that or any write before it has failed it says so on
// standard error and returns `fault`, else `status`: for the end of main.
int finish_standard_output(const char* program, int status, int fault);
