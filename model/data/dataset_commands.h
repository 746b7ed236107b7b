// The commands of tailor-tokenize that write and look at data sets: prepare, import, verify, show.
// `tailor data` runs the same program, so they are described in one place.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::data {

/// Loads what --tokenizer names.
using LoadTokenizer =
    std::function<Result<std::unique_ptr<tokenizers::Tokenizer>>(const std::string&)>;

/// What `prepare` and `train` say in JSON of files that they did not read.
nlohmann::ordered_json passed_over_json(const std::vector<PassedOver>& passed_over);

/// Not thread-safe.
class DatasetCommands {
 public:
  /// Adds the commands to `app`, which outlives this.
  DatasetCommands(CLI::App* app, LoadTokenizer load_tokenizer);
  ~DatasetCommands();
  DatasetCommands(const DatasetCommands&) = delete;
  DatasetCommands& operator=(const DatasetCommands&) = delete;

  /// Runs the command that was parsed; nullopt when it is none of these.
  std::optional<Status> run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::data
