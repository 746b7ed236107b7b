// `tailor-trainer diagnose`: what every layer of a model does to its tokens, and how much the loss
// minds (docs/diagnose.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/diagnose/run.h"

namespace CLI {
class App;
}

namespace tailor::trainer {

struct DiagnoseOptions {
  std::string model;
  std::vector<std::string> data;  ///< empty: the validation shards of a trial
  std::string tokenizer;          ///< "" = the model's own
  std::string out = "diagnosis";
  std::string dtype = "f32";
  std::string device = "cpu";
  double memory_gb = 0;  ///< of host memory; 0 = 20, or 80 % of what is free
  std::vector<std::string> perturbations = {"relative"};
  diagnose::Settings settings;
  bool json = false;
};

/// Adds the command's options to `command`; they fill `options`, which outlives the parse.
void add_diagnose_options(CLI::App& command, DiagnoseOptions& options);

/// Opens the model, diagnoses it into options.out and returns the result: for a program, or for a
/// stage that gives a trial's directory. Errors: those of open_model_files, choose_sequences and
/// diagnose::diagnose.
Result<nlohmann::ordered_json> diagnose_model(const DiagnoseOptions& options,
                                              const diagnose::ShowProgress& progress = {});

/// Runs it: summary to stdout, progress to stderr. Returns the program's exit code.
int run_diagnose(const DiagnoseOptions& options);

}  // namespace tailor::trainer
