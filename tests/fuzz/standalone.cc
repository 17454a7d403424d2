// SPDX-License-Identifier: Apache-2.0

// A driver for compilers without libFuzzer: PROGRAM SECONDS SEED_FILE_OR_FOLDER ... Runs every seed
// as it is, then mutations of seeds from a fixed random sequence until the time is up. A crash
// leaves its input in ./fuzz-crash.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.h"

namespace {

using Random = std::mt19937_64;

const char* const kWords[] = {
    "-1", "0",   "1e300", "9223372036854775808", "null", "{}", "[]", "true", "\"\"", "--", "${X}",
    "(",  ")*9", "|"};

std::size_t below(Random& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

void mutate(Random& random, const std::vector<std::string>& seeds, std::string& text) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t length = below(random, std::min<std::size_t>(16, text.size() - at + 1));
  switch (random() % 7) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(below(random, text.size() + 1), 1 + below(random, 64)));
      break;
    case 3:
      if (at < text.size()) text[at] = static_cast<char>(random() % 256);
      break;
    case 4:
      text.replace(at, length, kWords[below(random, std::size(kWords))]);
      break;
    case 5: {  // another seed's piece
      const std::string& other = seeds[below(random, seeds.size())];
      text.insert(at, other, below(random, other.size() + 1), 1 + below(random, 200));
      break;
    }
    default:  // a digit becomes another: numbers are where trouble is
      for (std::size_t i = at; i < text.size(); ++i)
        if (text[i] >= '0' && text[i] <= '9') {
          text[i] = static_cast<char>('0' + random() % 10);
          break;
        }
  }
}

std::string current;

// Only async-signal-safe calls: leave the input behind, then die as the signal says.
void leave_input(int signal_number) {
  const int file = ::open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void feed() {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

std::vector<std::string> read_seeds(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 2; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
        if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> seeds = read_seeds(argc, argv);
  if (seeds.empty()) return std::fprintf(stderr, "no seeds\n"), 2;
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal_number, leave_input);
  for (const std::string& seed : seeds) current = seed, feed();

  Random random(1);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(std::atof(argv[1]));
  std::size_t inputs = seeds.size();
  for (; Clock::now() < end; ++inputs) {
    current = seeds[below(random, seeds.size())];
    for (std::size_t edits = 1 + random() % 5; edits > 0; --edits) mutate(random, seeds, current);
    feed();
  }
  std::printf("%zu inputs from %zu seeds\n", inputs, seeds.size());
  return 0;
}
