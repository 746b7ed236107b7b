#include "worker/trainer/evaluate.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/data/dataset.h"
#include "model/data/manifest.h"
#include "model/eval/compare.h"
#include "model/eval/items.h"
#include "model/eval/perplexity.h"
#include "model/eval/records.h"
#include "model/eval/scorer.h"
#include "model/tokenizers/open_tokenizer.h"
#include "protocol/report.h"
#include "worker/trainer/device.h"
#include "worker/trainer/open_model.h"

namespace tailor::trainer {
namespace {

using nlohmann::ordered_json;
using protocol::TrainerExit;

/// Windows of a perplexity when nothing is asked for: no longer than this (ours).
constexpr std::int64_t kWindowDefault = 2048;

/// Null stands for a number that does not exist (the standard error of one item).
ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

/// A line on stderr: rewritten on a terminal, else every ten seconds.
class EvaluationProgress {
 public:
  explicit EvaluationProgress(std::string what) : what_(std::move(what)) {}
  ~EvaluationProgress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  EvaluationProgress(const EvaluationProgress&) = delete;
  EvaluationProgress& operator=(const EvaluationProgress&) = delete;

  bool show(std::uint64_t done, std::uint64_t total) {
    const MonotonicMs now_ms = clock_.now_ms();
    if (now_ms - shown_ms_ < (is_terminal_ ? 200 : 10'000)) return true;
    shown_ms_ = now_ms;
    const double left_s = static_cast<double>(now_ms - start_ms_) / 1000 *
                          static_cast<double>(total - done) / static_cast<double>(done);
    fmt::print(stderr, "{}{}: {} of {} sequences, about {:.0f} s left{}", drawn_ ? "\r\033[K" : "",
               what_, done, total, left_s, is_terminal_ ? "" : "\n");
    std::fflush(stderr);
    drawn_ = is_terminal_;
    return true;
  }
  eval::Progress callback() {
    return [this](std::uint64_t done, std::uint64_t total) { return show(done, total); };
  }
  double seconds() const { return static_cast<double>(clock_.now_ms() - start_ms_) / 1000; }

 private:
  SystemClock clock_;
  std::string what_;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  MonotonicMs start_ms_ = clock_.now_ms();
  MonotonicMs shown_ms_ = start_ms_;
  bool drawn_ = false;
};

/// A task that was asked for, and its file.
struct AskedTask {
  const eval::Task* task = nullptr;
  eval::ItemFile file;
};

Result<std::vector<AskedTask>> read_tasks(const EvaluateOptions& options) {
  std::vector<AskedTask> asked;
  for (const std::string& word : options.tasks) {
    const std::size_t equals = word.find('=');
    TAILOR_ASSIGN_OR_RETURN(const eval::Task* task, eval::find_task(word.substr(0, equals)));
    if (std::any_of(asked.begin(), asked.end(), [&](const auto& a) { return a.task == task; })) {
      return error(Code::kInvalidArgument, fmt::format("task {} is named twice", task->name));
    }
    std::string path = equals == word.npos ? "" : word.substr(equals + 1);
    if (path.empty()) {
      TAILOR_ASSIGN_OR_RETURN(path, eval::find_item_file(*task, options.data));
    }
    TAILOR_ASSIGN_OR_RETURN(eval::ItemFile file, eval::read_items(*task, path, options.limit));
    asked.push_back({task, std::move(file)});
  }
  return asked;
}

ordered_json summary_of(const AskedTask& asked, std::span<const eval::ItemResult> results,
                        double seconds) {
  ordered_json out = {{"items", results.size()},
                      {"items_in_file", asked.file.items_total},
                      {"file", asked.file.path},
                      {"file_sha256", asked.file.sha256}};
  for (const eval::Metric metric : eval::kMetrics) {
    const eval::Accuracy accuracy = eval::accuracy(results, metric);
    const std::string name(eval::metric_name(metric));
    out[name] = accuracy.value;
    out[name + "_stderr"] = number_or_null(accuracy.standard_error);
  }
  out["cut_items"] = std::count_if(results.begin(), results.end(),
                                   [](const auto& item) { return item.cut_tokens > 0; });
  out["seconds"] = seconds;
  return out;
}

/// A model that is being evaluated, and what the result says about it.
class Evaluator {
 public:
  Evaluator(const EvaluateOptions& options, OpenModel model)
      : options_(options), model_(std::move(model)) {
    batch_.rows = options.batch;
    out_ = {{"model", options.model},
            {"weights", model_.weights},
            {"parameters", model_.decoder->parameters().size()},
            {"dtype", options.dtype},
            {"device", options.device}};
  }

  Status run() {
    // Cheap failures first: all files are read before the first forward pass.
    TAILOR_ASSIGN_OR_RETURN(const std::vector<AskedTask> asked, read_tasks(options_));
    if (!asked.empty() || !options_.text.empty() || !options_.tokenizer.empty()) {
      TAILOR_ASSIGN_OR_RETURN(ModelTokenizer found, tokenizer_of(model_, options_.tokenizer));
      tokenizer_ = std::move(found.tokenizer);
      tokenizer_path_ = found.path;
      tokenizer_sha256_ = found.sha256;
      if (options_.tokenizer.empty()) {
        fmt::print(stderr, "tokenizer: {} ({})\n", found.path, found.found);
      } else if (model_.tokenizer_is_unknown) {
        fmt::print(
            stderr,
            "note: the model's ids were imported without their tokenizer: whether {} made them "
            "cannot be checked\n",
            found.path);
      }
      const bool adds_bos = tokenizer_->adds_bos() && tokenizer_->bos_id().has_value();
      out_["tokenizer"] = {{"path", found.path},
                           {"found", found.found},
                           {"sha256", found.sha256},
                           {"checked", found.checked},
                           {"vocab_size", tokenizer_->vocab_size()},
                           {"adds_bos", adds_bos}};
      if (adds_bos) encoding_.bos = tokenizer_->bos_id();
      encoding_.prefix = tokenizer_->bos_id().value_or(tokenizer_->eos_id());
      encoding_.vocab_size = static_cast<std::uint32_t>(model_.decoder->form().vocab_size);
    }
    if (!asked.empty()) TAILOR_RETURN_IF_ERROR(run_tasks(asked));
    if (!options_.text.empty()) TAILOR_RETURN_IF_ERROR(run_text());
    if (!options_.tokens.empty()) TAILOR_RETURN_IF_ERROR(run_shards());
    return Status::ok();
  }

  const ordered_json& result() const { return out_; }

 private:
  Status run_tasks(const std::vector<AskedTask>& asked) {
    encoding_.sequence_length = options_.max_length > 0 ? options_.max_length
                                : model_.positions > 0  ? model_.positions
                                                        : kWindowDefault;
    out_["max_length"] = encoding_.sequence_length;
    std::string records;
    for (const AskedTask& task : asked) {
      EvaluationProgress progress{std::string(task.task->name)};
      TAILOR_ASSIGN_OR_RETURN(
          const std::vector<eval::ItemResult> results,
          eval::evaluate_items(*model_.decoder, *tokenizer_, encoding_, task.task->name,
                               task.file.items, batch_, progress.callback()));
      out_["tasks"][std::string(task.task->name)] = summary_of(task, results, progress.seconds());
      for (const eval::ItemResult& item : results) records += eval::record_line(item) + "\n";
      // After each task, so that a later failure loses none of the work before it.
      if (!options_.records.empty()) {
        TAILOR_RETURN_IF_ERROR(write_file_atomic(options_.records, records));
      }
    }
    return Status::ok();
  }

  Status run_text() {
    TAILOR_ASSIGN_OR_RETURN(const std::string content, read_file(options_.text));
    constexpr std::size_t kStartBytes = 4096;
    const std::string_view encoding =
        utf16_or_utf32(std::string_view(content).substr(0, kStartBytes));
    if (!encoding.empty()) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{} is {} text, and UTF-8 is read: convert it with iconv -f {} -t UTF-8",
                      options_.text, encoding, encoding));
    }
    const std::string_view text = without_byte_order_mark(content);
    std::size_t bad_offset = 0;
    if (!is_valid_utf8(text, &bad_offset)) {
      return Status(Code::kInvalidArgument, fmt::format("{} is not UTF-8: wrong byte at offset {}",
                                                        options_.text, bad_offset));
    }
    std::vector<std::uint32_t> ids;
    if (encoding_.bos) ids.push_back(*encoding_.bos);
    tokenizer_->encode(text, &ids);
    eval::TokenStream stream;
    stream.count = ids.size();
    stream.text_bytes = text.size();
    stream.read = [&ids](std::uint64_t position, std::span<std::uint32_t> out) {
      std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(position), out.size(), out.begin());
      return Status::ok();
    };
    return run_perplexity(options_.text, std::move(stream));
  }

  Status run_shards() {
    TAILOR_ASSIGN_OR_RETURN(const data::Dataset dataset,
                            data::Dataset::open_glob(options_.tokens, {}));
    // Without a tokenizer the model's own shards say whose ids they are.
    const bool is_unknown = dataset.tokenizer_sha256() ==
                            data::unknown_tokenizer_sha256(dataset.vocab_size(), dataset.eos_id());
    if (tokenizer_ != nullptr && !is_unknown) {
      TAILOR_RETURN_IF_ERROR(check_shards_tokenizer(dataset));
    } else if (!model_.tokenizer_sha256.empty() &&
               model_.tokenizer_sha256 != dataset.tokenizer_sha256()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} holds ids of another tokenizer than the model was trained on",
                                options_.tokens));
    }
    eval::TokenStream stream;
    stream.count = dataset.token_count();
    stream.text_bytes = dataset.text_bytes();
    stream.read = [&dataset](std::uint64_t position, std::span<std::uint32_t> out) {
      return dataset.read(position, out);
    };
    TAILOR_RETURN_IF_ERROR(run_perplexity(options_.tokens, std::move(stream)));
    out_["perplexity"].back()["data_hash"] = dataset.content_hash();
    return Status::ok();
  }

  /// kInvalidArgument unless the tokenizer is that of `dataset`.
  Status check_shards_tokenizer(const data::Dataset& dataset) const {
    if (dataset.tokenizer_sha256() == tokenizer_sha256_) return Status::ok();
    // The data set may keep this very file, whatever hash its version had for it.
    const auto manifest = data::manifest_beside(dataset);
    const auto file = tokenizers::tokenizer_file(tokenizer_path_);
    const auto file_sha256 = file ? sha256_file(*file) : Result<std::string>(error(file.error()));
    if (manifest && !manifest->tokenizer.files.empty() && file_sha256 &&
        manifest->tokenizer.files.front().sha256 == *file_sha256) {
      return Status::ok();
    }
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is not the tokenizer of {}: those shards name the SHA-256 {}, this one "
                    "has {}",
                    tokenizer_path_, options_.tokens, dataset.tokenizer_sha256(),
                    tokenizer_sha256_));
  }

  Status run_perplexity(const std::string& source, eval::TokenStream stream) {
    if (options_.max_tokens > 0 && stream.count > options_.max_tokens + 1) {
      stream.count = options_.max_tokens + 1;
      stream.text_bytes = 0;
    }
    eval::PerplexityOptions options;
    options.length = options_.max_length;
    if (options.length == 0) {
      options.length =
          model_.positions > 0 ? std::min(model_.positions, kWindowDefault) : kWindowDefault;
    }
    options.stride = options_.stride == 0 ? options.length : options_.stride;
    options.seed = options_.seed;
    options.batch = batch_;
    EvaluationProgress progress("perplexity");
    const auto found =
        eval::evaluate_perplexity(*model_.decoder, stream, options, progress.callback());
    if (!found) return found.error().with_context(source);
    out_["perplexity"].push_back(
        {{"source", source},
         {"window", options.length},
         {"stride", options.stride},
         {"windows", found->windows},
         {"tokens", stream.count},
         {"scored_tokens", found->scored},
         {"loss", found->loss},
         {"loss_stderr", number_or_null(found->standard_error)},
         {"bootstrap_seed", options.seed},
         {"perplexity", number_or_null(found->perplexity)},
         {"bits_per_byte", number_or_null(found->bits_per_byte)},
         {"text_bytes", stream.text_bytes == 0 ? ordered_json() : ordered_json(stream.text_bytes)},
         {"tokens_sha256", found->tokens_sha256},
         {"seconds", progress.seconds()}});
    return Status::ok();
  }

  const EvaluateOptions& options_;
  OpenModel model_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_;
  std::string tokenizer_path_, tokenizer_sha256_;
  eval::Encoding encoding_;
  eval::BatchOptions batch_;
  ordered_json out_;
};

std::string text_of(const ordered_json& value, const char* format_string) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(format_string), value.get<double>());
}

void print_evaluation(const ordered_json& out) {
  if (out.contains("tasks")) {
    fmt::print("{:<12}{:>7}", "task", "items");
    for (const eval::Metric metric : eval::kMetrics) {
      fmt::print("{:>10}{:>9}", eval::metric_name(metric), "stderr");
    }
    fmt::print("\n");
    for (const auto& [name, task] : out["tasks"].items()) {
      fmt::print("{:<12}{:>7}", name, task["items"].get<std::size_t>());
      for (const eval::Metric metric : eval::kMetrics) {
        const std::string key(eval::metric_name(metric));
        fmt::print("{:>10}{:>9}", text_of(task[key], "{:.4f}"),
                   text_of(task[key + "_stderr"], "{:.4f}"));
      }
      fmt::print("\n");
    }
  }
  if (!out.contains("perplexity")) return;
  for (const auto& found : out["perplexity"]) {
    fmt::print(
        "{}: loss {} ± {} nats a token, perplexity {}, {} bits a byte ({} tokens, window {}, "
        "stride {})\n",
        found["source"].get<std::string>(), text_of(found["loss"], "{:.5f}"),
        text_of(found["loss_stderr"], "{:.5f}"), text_of(found["perplexity"], "{:.4f}"),
        text_of(found["bits_per_byte"], "{:.5f}"), found["scored_tokens"].get<std::uint64_t>(),
        found["window"].get<std::int64_t>(), found["stride"].get<std::int64_t>());
  }
}

Status run_compare(const EvaluateOptions& options) {
  TAILOR_ASSIGN_OR_RETURN(const auto a, eval::read_records(options.compare[0]));
  TAILOR_ASSIGN_OR_RETURN(const auto b, eval::read_records(options.compare[1]));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<eval::TaskComparison> tasks, eval::compare(a, b));
  ordered_json out = {{"a", options.compare[0]}, {"b", options.compare[1]}};
  for (const eval::TaskComparison& task : tasks) {
    ordered_json& entry = out["tasks"][task.task];
    entry = {{"items", task.items}, {"only_in_a", task.only_in_a}, {"only_in_b", task.only_in_b}};
    for (const eval::MetricComparison& metric : task.metrics) {
      entry[std::string(eval::metric_name(metric.metric))] = {
          {"a", metric.a},
          {"b", metric.b},
          {"difference", metric.difference},
          {"difference_stderr", number_or_null(metric.standard_error)},
          {"both_right", metric.both_right},
          {"only_a_right", metric.only_a_right},
          {"only_b_right", metric.only_b_right},
          {"both_wrong", metric.both_wrong},
          {"p", metric.p}};
    }
  }
  if (options.json) {
    fmt::print("{}\n", out.dump());
    return Status::ok();
  }
  fmt::print("{:<12}{:<11}{:>7}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>11}\n", "task", "metric", "items",
             "A", "B", "B - A", "stderr", "only A", "only B", "p");
  for (const eval::TaskComparison& task : tasks) {
    for (const eval::MetricComparison& metric : task.metrics) {
      fmt::print("{:<12}{:<11}{:>7}{:>9.4f}{:>9.4f}{:>+9.4f}{:>9}{:>8}{:>8}{:>11.4g}\n", task.task,
                 eval::metric_name(metric.metric), task.items, metric.a, metric.b,
                 metric.difference, text_of(number_or_null(metric.standard_error), "{:.4f}"),
                 metric.only_a_right, metric.only_b_right, metric.p);
    }
    if (task.only_in_a + task.only_in_b > 0) {
      fmt::print(stderr, "{}: {} items only in A and {} only in B are left out\n", task.task,
                 task.only_in_a, task.only_in_b);
    }
  }
  return Status::ok();
}

Status run_model(const EvaluateOptions& options) {
  at::set_num_threads(options.threads);
  at::globalContext().setFlushDenormal(true);
  TAILOR_ASSIGN_OR_RETURN(const OpenDevice device, open_device(options.device));
  TAILOR_ASSIGN_OR_RETURN(OpenModel model,
                          open_model(options.model, device.device, options.dtype == "bf16"));
  Evaluator evaluator(options, std::move(model));
  TAILOR_RETURN_IF_ERROR(evaluator.run());
  if (options.json) {
    fmt::print("{}\n", evaluator.result().dump());
  } else {
    print_evaluation(evaluator.result());
  }
  return Status::ok();
}

/// What is wrong with the options together, or "".
std::string misuse(const EvaluateOptions& options) {
  const bool measures = !options.tasks.empty() || !options.text.empty() || !options.tokens.empty();
  if (!options.compare.empty()) {
    return options.model.empty() && !measures ? ""
                                              : "--compare reads two records files and no model";
  }
  if (options.model.empty()) return "give --model (or --compare A.jsonl B.jsonl)";
  if (!measures) return "nothing to measure: give --tasks, --text or --tokens";
  if (!options.records.empty() && options.tasks.empty()) return "--records needs --tasks";
  return "";
}

TrainerExit exit_of_status(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return TrainerExit::kCompleted;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kUnimplemented:
      return TrainerExit::kUsage;
    case Code::kDataLoss:
      return TrainerExit::kData;
    case Code::kOutOfRange:  // scores that are not finite
      return TrainerExit::kNan;
    default:
      return TrainerExit::kInfrastructure;
  }
}

}  // namespace

void add_evaluate_options(CLI::App& command, EvaluateOptions& options) {
  command.footer(
      "Examples:\n"
      "  tailor-trainer evaluate --model trials/t41/2 --tasks arc_easy,piqa --data bench/ "
      "--records a.jsonl\n"
      "  tailor-trainer evaluate --model SmolLM2-135M.gguf --tasks hellaswag --limit 500 --json\n"
      "  tailor-trainer evaluate --model trials/t41/2 --tokens 'data/docs-validation-*.tokens' "
      "--stride 128\n"
      "  tailor-trainer evaluate --compare a.jsonl b.jsonl\n"
      "Zero-shot, by lm-evaluation-harness's rules. Exit codes: 0 ok, 2 usage or bad input, 3 "
      "damaged files, 4 out of memory, 5 scores that are not finite, 7 other.");
  std::string tasks;
  for (const eval::Task* task : eval::tasks()) {
    tasks += fmt::format("{}{}", tasks.empty() ? "" : ", ", task->name);
  }
  command.add_option("--model", options.model,
                     "trial directory, one of its checkpoints, folder with config.json, or .gguf");
  command.add_option("--tasks", options.tasks, "of " + tasks + "; NAME=FILE names the file too")
      ->delimiter(',');
  command.add_option("--data", options.data, "folder of the tasks' files (.)");
  command.add_option("--tokenizer", options.tokenizer,
                     "\"bytes\", tokenizer.json, .model, .gguf or a folder (the model's own)");
  command.add_option("--limit", options.limit, "first items of each task (all)");
  command.add_option("--records", options.records, "write every item's scores there (JSON lines)");
  command.add_option("--text", options.text, "perplexity of a UTF-8 text file");
  command.add_option("--tokens", options.tokens, "perplexity of token shards: names or patterns");
  command.add_option("--max-tokens", options.max_tokens, "score no more tokens than this (all)");
  command
      .add_option("--stride", options.stride,
                  "of the perplexity's windows: each scores its last tokens (side by side)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--seed", options.seed, "of the bootstrap for the standard error (0)");
  command
      .add_option("--max-length", options.max_length,
                  "tokens that the model reads at once (what it was made for; for perplexity at "
                  "most 2048)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--batch", options.batch, "sequences of a forward pass (8192 tokens)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--dtype", options.dtype, "of the products: f32 or bf16 (f32)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--device", options.device, "cpu or cuda:N (cpu)");
  command.add_option("--threads", options.threads, "CPU threads (1)")->check(CLI::PositiveNumber);
  command.add_option("--compare", options.compare, "two records files: McNemar's test, no model")
      ->expected(2);
  command.add_flag("--json", options.json, "one line of JSON");
}

int run_evaluate(const EvaluateOptions& options) {
  const auto refuse = [](TrainerExit code, std::string_view message) {
    fmt::print(stderr, "tailor-trainer evaluate: {}\n", message);
    return static_cast<int>(code);
  };
  if (const std::string wrong = misuse(options); !wrong.empty()) {
    return refuse(TrainerExit::kUsage, wrong);
  }
  try {
    const Status status = options.compare.empty() ? run_model(options) : run_compare(options);
    if (!status) return refuse(exit_of_status(status), status.message());
    // Output that could not be written is no success.
    if (std::fflush(stdout) != 0)
      return refuse(TrainerExit::kInfrastructure, "cannot write stdout");
    return 0;
  } catch (const c10::OutOfMemoryError& failure) {
    return refuse(TrainerExit::kOom, failure.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return refuse(TrainerExit::kOom, "out of memory; use a smaller --batch");
  } catch (const std::exception& failure) {
    return refuse(TrainerExit::kInfrastructure, failure.what());
  }
}

}  // namespace tailor::trainer
