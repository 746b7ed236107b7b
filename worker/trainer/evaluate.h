// `tailor-trainer evaluate`: multiple-choice tasks and perplexity of a model,
// and comparisons of runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tailor::trainer {

struct EvaluateOptions {
  std::string model;
  std::string tokenizer;           ///< "" = the model's own
  std::vector<std::string> tasks;  ///< NAME, or NAME=FILE
  std::string data = ".";          ///< folder of the tasks' files
  std::uint64_t limit = 0;         ///< first items of each task; 0 = all
  std::string records;             ///< file to write; "" = none
  std::string text;                ///< file whose perplexity is measured; "" = none
  std::string tokens;              ///< patterns of token shards; "" = none
  std::uint64_t max_tokens = 0;    ///< scored at most, of `text` or `tokens`; 0 = all
  std::int64_t stride = 0;         ///< 0 = side by side
  std::uint64_t seed = 0;          ///< of the bootstrap
  std::int64_t max_length = 0;     ///< T; 0 = by the model
  std::int64_t batch = 0;          ///< sequences of a forward pass; 0 = as memory allows
  std::string dtype = "f32";
  std::string device = "cpu";
  int threads = 1;
  std::vector<std::string> compare;  ///< two records files, instead of a model
  bool json = false;
};

/// Adds the command's options to `command`; they fill `options`, which outlives the parse.
void add_evaluate_options(CLI::App& command, EvaluateOptions& options);

/// Runs it: results to stdout, progress to stderr. Returns the program's exit code.
int run_evaluate(const EvaluateOptions& options);

}  // namespace tailor::trainer
