// Runs a fuzz target without libFuzzer: its seeds, the files of a folder, then seeded random
// mutations of both: edits of a few bytes, and growth in depth and length (tests/fuzz/growth.h).
//
//   fuzz_NAME [FOLDER|FILE ...] [--runs N | --seconds S] [--seed S] [--write-seeds FOLDER]
//
// An input that brings the target down, takes more memory than the process may have, or more than a
// minute, is left in fuzz-crash-NAME.bin, and the run can be repeated with the seed. --write-seeds
// makes a starting corpus for libFuzzer. tests/fuzz/run.sh runs every target under a limit of
// memory.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/growth.h"

// Called by the sanitizers before they end the process, where they are linked in.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

using tailor::Rng;

constexpr std::size_t kBytesMax = 1 << 16;
constexpr std::size_t kGrownBytesMax = 4 << 20;
constexpr unsigned kSecondsAnInput = 60;

std::string g_input;      // the input that the target has now
std::uint64_t g_run = 0;  // its number
std::string g_crash_file = "fuzz-crash.bin";

// Only async-signal-safe calls: the program is dying.
void save_input() {
  const int file = ::open(g_crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) {
    if (::write(file, g_input.data(), g_input.size()) < 0) ::_exit(99);
    ::close(file);
  }
  constexpr char kNote[] = "fuzz: the input is in ";
  if (::write(STDERR_FILENO, kNote, sizeof kNote - 1) < 0) ::_exit(99);
  if (::write(STDERR_FILENO, g_crash_file.data(), g_crash_file.size()) < 0) ::_exit(99);
  if (::write(STDERR_FILENO, "\n", 1) < 0) ::_exit(99);
}

void on_alarm(int) {
  constexpr char kNote[] = "fuzz: broken promise: an input takes a minute at most\n";
  if (::write(STDERR_FILENO, kNote, sizeof kNote - 1) < 0) ::_exit(99);
  save_input();
  ::_exit(1);
}

void on_signal(int number) {
  save_input();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void run(std::string input) {
  g_input = std::move(input);
  ++g_run;
  ::alarm(kSecondsAnInput);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(g_input.data()), g_input.size());
}

// Growth is rare, since such inputs take a thousand times as long as others.
constexpr std::uint64_t kGrownEvery = 64;

// A few random edits: what files go through, and what an attacker tries.
std::string mutated(const std::vector<std::string>& corpus, Rng& rng) {
  constexpr std::uint64_t kNumbers[] = {0,
                                        1,
                                        2,
                                        0x7f,
                                        0x80,
                                        0xff,
                                        0x7fff,
                                        0xffff,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        0xffffffffffffffff,
                                        0x7ff0000000000000,   // infinity
                                        0x7ff8000000000000,   // NaN
                                        0x0000000000000001};  // the smallest float64
  std::string text = corpus[rng.below(corpus.size())];
  if (rng.below(kGrownEvery) == 0) return tailor::fuzz::grown(std::move(text), rng, kGrownBytesMax);
  for (std::uint64_t edits = 1 + rng.below(5); edits > 0; --edits) {
    const std::size_t at = text.empty() ? 0 : rng.below(text.size());
    const std::size_t length =
        text.empty() ? 0 : 1 + rng.below(std::min<std::size_t>(32, text.size() - at));
    switch (rng.below(9)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << rng.below(8)));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(rng.below(256));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, std::string(1 + rng.below(16), static_cast<char>(rng.below(256))));
        break;
      case 4:
        text.insert(at, text.substr(at, length));
        break;
      case 5:
        text.resize(at);
        break;
      case 6: {
        const std::uint64_t number = kNumbers[rng.below(std::size(kNumbers))];
        const std::size_t bytes = std::size_t{1} << rng.below(4);
        if (at + bytes <= text.size()) std::memcpy(text.data() + at, &number, bytes);
        break;
      }
      case 7: {
        const std::string& other = corpus[rng.below(corpus.size())];
        text = text.substr(0, at) + other.substr(other.empty() ? 0 : rng.below(other.size()));
        break;
      }
      default:  // a digit of a header becomes another, or grows
        for (std::size_t i = at; i < text.size(); ++i) {
          if (text[i] < '0' || text[i] > '9') continue;
          text[i] = static_cast<char>('0' + rng.below(10));
          if (rng.below(3) == 0) text.insert(i, std::string(1 + rng.below(20), '9'));
          break;
        }
    }
    if (text.size() > kBytesMax) text.resize(kBytesMax);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 20000, seed = 1, seconds = 0;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--runs" && has_value) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seconds" && has_value) {
      seconds = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--write-seeds" && has_value) {
      const std::string folder = argv[++i];
      std::filesystem::create_directories(folder);
      std::size_t number = 0;
      for (const std::string& text : tailor::fuzz::fuzz_seeds()) {
        const auto status =
            tailor::write_file_atomic(folder + "/seed-" + std::to_string(number++), text, false);
        if (!status.is_ok()) {
          std::fprintf(stderr, "%s\n", status.message().c_str());
          return 1;
        }
      }
      return 0;
    } else if (!word.empty() && word[0] == '-') {
      std::fprintf(stderr,
                   "usage: %s [FOLDER|FILE ...] [--runs N | --seconds S] [--seed S] [--write-seeds "
                   "FOLDER]\n",
                   argv[0]);
      return 2;
    } else {
      paths.push_back(word);
    }
  }
  g_crash_file = "fuzz-crash-" + std::filesystem::path(argv[0]).filename().string() + ".bin";
  ::signal(SIGALRM, on_alarm);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_input);

  std::vector<std::string> corpus = tailor::fuzz::fuzz_seeds();
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    auto text = tailor::read_file(file);
    if (!text) {
      std::fprintf(stderr, "%s\n", text.error().message().c_str());
      return 2;
    }
    corpus.push_back(std::move(*text));
  }
  corpus.emplace_back();
  for (const std::string& text : corpus) run(text);
  Rng rng = Rng::split(seed, "fuzz driver");
  const tailor::SystemClock clock;
  const auto end_ms = clock.now_ms() + static_cast<std::int64_t>(seconds) * 1000;
  for (std::uint64_t i = 0; seconds > 0 ? clock.now_ms() < end_ms : i < runs; ++i) {
    run(mutated(corpus, rng));
  }
  std::printf("%llu inputs, seed %llu: no promise was broken\n",
              static_cast<unsigned long long>(g_run), static_cast<unsigned long long>(seed));
  return 0;
}
