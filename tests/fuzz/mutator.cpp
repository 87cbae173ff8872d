// The mutator of targets that take packed files: it knows the format, so that half of what it makes
// passes the sums and comes to the checks behind them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "damage.h"
#include "made_file.h"
#include "packed_file.h"
#include "repair.h"

using namespace gannet;
using namespace gannet::fuzz;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  uint64_t words[32];
  for (uint64_t i = 0; i < 32; ++i) words[i] = random_word(seed, 2, i);
  Input choices(reinterpret_cast<const uint8_t*>(words), sizeof words);
  if (choices.below(16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::vector<uint8_t> file = unpack(data, size);
  if (file.size() < format::kFileBytesMin || choices.below(64) == 0)
    file = make_file(read_shape(choices, false));
  const uint64_t damages = choices.below(4);
  for (uint64_t i = 0; i < damages; ++i) damage(file, choices, kUnpackedMax);
  if (choices.below(2) == 0) repair(file);
  const std::vector<uint8_t> packed = pack(file);
  if (packed.empty() || packed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, packed.data(), packed.size());
  return packed.size();
}
